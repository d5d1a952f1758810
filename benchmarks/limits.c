/* The machine's own limits, each by the fastest of several loops.

   Tried and left out: wider and narrower blocks of accumulators (8 to 16 reach the same peak),
   memcpy (never ahead of both loops here), prefetching into the first-level cache (half as fast
   from memory, as its miss buffers fill up) and huge pages for the rows (no gain beside the
   prefetch). */
#include <omp.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif
#define CHAINS 12
#define ROW 1024

typedef float floats __attribute__((vector_size(BYTES)));
typedef double doubles __attribute__((vector_size(BYTES)));

// clang-format off: a pragma inside of a macro stands before its loop
#define MULTIPLY_ADD(name, vector, real)                                         \
  real name(int threads, long rounds) {                                          \
    real total = 0;                                                              \
    _Pragma("omp parallel num_threads(threads) reduction(+ : total)") {          \
      vector sum[CHAINS], factor = {0}, term = {0};                              \
      factor += (real)0.999;                                                     \
      term += (real)0.001;                                                       \
      for (int k = 0; k < CHAINS; k++) sum[k] = term * (real)k;                  \
      for (long round = 0; round < rounds; round++)                              \
        _Pragma("GCC unroll 12") for (int k = 0; k < CHAINS; k++)                \
          sum[k] = sum[k] * factor + term;                                       \
      for (int k = 0; k < CHAINS; k++) total += sum[k][0];                       \
    }                                                                            \
    return total;                                                                \
  }
// clang-format on
MULTIPLY_ADD(multiply_add_r4, floats, float)
MULTIPLY_ADD(multiply_add_r8, doubles, double)

/* Multiply-adds of one thread in `rounds`, for vectors of this width. */
long lanes_r4(void) { return CHAINS * BYTES / 4; }
long lanes_r8(void) { return CHAINS * BYTES / 8; }

/* Each thread copies its own `bytes`, `repeats` times. */
void copy_cached(int threads, long repeats, long bytes, char *to, const char *from) {
#pragma omp parallel num_threads(threads)
  {
    long start = omp_get_thread_num() * bytes;
    floats *restrict target = (floats *)(to + start);
    const floats *restrict source = (const floats *)(from + start);
    for (long repeat = 0; repeat < repeats; repeat++) {
      __asm__ volatile("" : : : "memory");
      for (long i = 0; i < bytes / BYTES; i += 4) {
        floats a = source[i], b = source[i + 1], c = source[i + 2], d = source[i + 3];
        target[i] = a, target[i + 1] = b, target[i + 2] = c, target[i + 3] = d;
      }
    }
  }
}

/* The same past the caches, where the processor has such stores. */
void copy_streaming(int threads, long repeats, long bytes, char *to, const char *from) {
#ifdef __SSE2__
#pragma omp parallel num_threads(threads)
  {
    long start = omp_get_thread_num() * bytes;
    for (long repeat = 0; repeat < repeats; repeat++)
      for (long i = start; i < start + bytes; i += BYTES)
#if BYTES == 64
        _mm512_stream_si512((__m512i *)(to + i), _mm512_load_si512((const __m512i *)(from + i)));
#elif BYTES == 32
        _mm256_stream_si256((__m256i *)(to + i), _mm256_load_si256((const __m256i *)(from + i)));
#else
        _mm_stream_si128((__m128i *)(to + i), _mm_load_si128((const __m128i *)(from + i)));
#endif
    _mm_sfence();
  }
#else
  copy_cached(threads, repeats, bytes, to, from);
#endif
}

/* sums[i] = the sum of `degree` rows of 1 KB, taken by `index`, `width` vectors at a time;
   `index` runs `ahead` entries past the last row. */
// clang-format off: a pragma inside of a macro stands before its loop
#define GATHER(name, width, ahead)                                                            \
  void name(int threads, long rows, int degree, const int *index, const float *table,         \
            float *sums) {                                                                    \
    enum { vectors = ROW / BYTES };                                                           \
    _Pragma("omp parallel for num_threads(threads) schedule(static)")                         \
    for (long row = 0; row < rows; row++)                                                     \
      for (int first = 0; first < vectors; first += width) {                                  \
        const int *entry = index + row * degree;                                              \
        floats sum[width] = {0};                                                              \
        for (int e = 0; e < degree; e++) {                                                    \
          const floats *source = (const floats *)table + (long)entry[e] * vectors + first;    \
          const char *next = (const char *)((const floats *)table +                           \
                                            (long)entry[e + ahead] * vectors + first);        \
          if (ahead)                                                                          \
            _Pragma("GCC unroll 16") for (int b = 0; b < width * BYTES; b += 64)              \
              __builtin_prefetch(next + b, 0, 1);                                             \
          _Pragma("GCC unroll 16") for (int k = 0; k < width; k++) sum[k] += source[k];       \
        }                                                                                     \
        for (int k = 0; k < width; k++) ((floats *)sums)[row * vectors + first + k] = sum[k]; \
      }                                                                                       \
  }
GATHER(gather_cached, 4, 0)
GATHER(gather_half_rows, 8, 16)
GATHER(gather_rows, 16, 12)

typedef float loose __attribute__((vector_size(BYTES), aligned(4)));

/* The same of rows of any width; they are read and written past their end by less than a vector,
   so one thread's rows have to be written in their order. */
#define SOME(n, ahead)                                                                        \
  case n: {                                                                                   \
    loose sum[n] = {0};                                                                       \
    for (int e = 0; e < degree; e++) {                                                        \
      const float *source = table + entry[e] * width + first;                                 \
      if (ahead) {                                                                            \
        const char *next = (const char *)(table + entry[e + ahead] * width + first);          \
        for (int b = 0; b < n * BYTES; b += 64) __builtin_prefetch(next + b, 0, 1);           \
      }                                                                                       \
      _Pragma("GCC unroll 8") for (int k = 0; k < n; k++) sum[k] += ((const loose *)source)[k]; \
    }                                                                                         \
    for (int k = 0; k < n; k++) ((loose *)(sums + row * width + first))[k] = sum[k];          \
    break;                                                                                    \
  }
#define GATHER_ANY(name, ahead)                                                               \
  void name(int threads, long rows, int degree, long width, const int *index,                 \
            const float *table, float *sums) {                                                \
    enum { lanes = BYTES / 4 };                                                               \
    _Pragma("omp parallel for num_threads(threads) schedule(static)")                         \
    for (long row = 0; row < rows; row++)                                                     \
      for (long first = 0; first < width; first += 8 * lanes) {                               \
        const int *entry = index + row * degree;                                              \
        long left = (width - first + lanes - 1) / lanes;                                      \
        switch (left < 8 ? left : 8) {                                                        \
          SOME(1, ahead) SOME(2, ahead) SOME(3, ahead) SOME(4, ahead)                         \
          SOME(5, ahead) SOME(6, ahead) SOME(7, ahead) SOME(8, ahead)                         \
        }                                                                                     \
      }                                                                                       \
  }
// clang-format on
GATHER_ANY(gather_any_cached, 0)
GATHER_ANY(gather_any, 16)

/* Counting sort by key in [0, rows): row offsets, the entries of each row, their other ends. */
void counting_sort(long rows, long entries, const long *key, const long *other, long *offsets,
                   long *order, int *ends) {
  for (long i = 0; i <= rows; i++) offsets[i] = 0;
  for (long k = 0; k < entries; k++) offsets[key[k] + 1]++;
  for (long i = 0; i < rows; i++) offsets[i + 1] += offsets[i];
  for (long k = 0; k < entries; k++) {
    long next = offsets[key[k]]++;
    order[next] = k;
    ends[next] = (int)other[k];
  }
  for (long i = rows; i > 0; i--) offsets[i] = offsets[i - 1];
  offsets[0] = 0;
}
