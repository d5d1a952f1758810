/* Prefetches rows of a table into L2, as L1 has few outstanding line fills. Fortran has no
   prefetch statement. */
#include <stdint.h>

#if defined(__GNUC__) || defined(__clang__)
#define PREFETCH_LINE(address) __builtin_prefetch((const void *)(address), 0, 2)
#else
#define PREFETCH_LINE(address) (void)(address)
#endif
#define LINE ((uintptr_t)64)

/* Prefetches the cache lines of each row, from its first to the last that ends within `bytes`.
   The counter keeps compilers from removing the call as one without effect. */
#define PREFETCH(name, type)                                                               \
  void name(int64_t count, const type *rows, int64_t ld, int64_t bytes, const char *table, \
            int64_t *prefetched) {                                                         \
    for (int64_t p = 0; p < count; p++) {                                                  \
      uintptr_t row = (uintptr_t)(table + (rows[p] - (int64_t)1) * ld);                    \
      uintptr_t end = row + (uintptr_t)bytes - LINE;                                       \
      row &= ~(LINE - 1);                                                                  \
      for (; row + 3 * LINE <= end; row += 4 * LINE)                                       \
        PREFETCH_LINE(row), PREFETCH_LINE(row + LINE), PREFETCH_LINE(row + 2 * LINE),      \
            PREFETCH_LINE(row + 3 * LINE);                                                 \
      for (; row <= end; row += LINE) PREFETCH_LINE(row);                                  \
    }                                                                                      \
    *prefetched += count;                                                                  \
  }
PREFETCH(pyops_prefetch_rows, int32_t)
PREFETCH(pyops_prefetch_ids, int64_t)

/* `inline` requests inlining across languages under link-time optimisation. */
extern inline void pyops_prefetch_lines(int64_t count, const char *place, int64_t *prefetched);
inline void pyops_prefetch_lines(int64_t count, const char *place, int64_t *prefetched) {
  for (int64_t i = 0; i < count; i++) PREFETCH_LINE(place + LINE * i);
  *prefetched += count;
}
