/* Large arrays that are returned to the system when freed, while malloc may keep them. */
#include <stdint.h>
#include <stdlib.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#endif

#if defined(MAP_ANONYMOUS)
#define LARGE (INT64_C(1) << 20)
#define PAGE (INT64_C(1) << 21) /* a huge page */
/* The system backs only whole pages by huge ones; the last one pays if it is at least half full. */
#define LENGTH(bytes) ((size_t)(((bytes) + PAGE - 1) / PAGE * PAGE))
#define FILLED(bytes) ((size_t)(((bytes) + PAGE / 2) / PAGE * PAGE))
#else
#define LARGE INT64_MAX
#endif

void *pyops_take_memory(int64_t bytes) {
  if (bytes < LARGE) return malloc(bytes > 0 ? (size_t)bytes : 1);
#if defined(MAP_ANONYMOUS)
  void *memory =
      mmap(NULL, LENGTH(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
#if defined(MADV_HUGEPAGE)
  madvise(memory, FILLED(bytes), MADV_HUGEPAGE);
#endif
  return memory;
#else
  return malloc((size_t)bytes);
#endif
}

/* Asks for huge pages within an array of malloc, before it is touched. */
void pyops_use_huge_pages(void *memory, int64_t bytes) {
#if defined(MADV_HUGEPAGE)
  uintptr_t first = ((uintptr_t)memory + PAGE - 1) / PAGE * PAGE;
  uintptr_t last = ((uintptr_t)memory + (uintptr_t)bytes) / PAGE * PAGE;
  if (first < last) madvise((void *)first, last - first, MADV_HUGEPAGE);
#else
  (void)memory, (void)bytes;
#endif
}

void pyops_give_memory(void *memory, int64_t bytes) {
#if defined(MAP_ANONYMOUS)
  if (bytes >= LARGE) {
    munmap(memory, LENGTH(bytes));
    return;
  }
#endif
  free(memory);
}
