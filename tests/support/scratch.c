/* Memory and stack full of signalling NaN, of both precisions: who computes with it is seen. */
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

#define SMALL 1024 /* bytes, and less: what libpyops aligns is larger */
#define STACK (1 << 18)

void *__libc_malloc(size_t bytes);

static void fill(void *memory, size_t bytes) {
  for (size_t i = 0; i < bytes / 8; ++i) ((volatile uint64_t *)memory)[i] = 0x7ff000017f800001u;
}

void *malloc(size_t bytes) {
  void *memory = __libc_malloc(bytes);
  if (memory != NULL && bytes <= SMALL) fill(memory, bytes);
  return memory;
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  if (*memory == NULL) return 12;
  fill(*memory, bytes);
  return 0;
}

void fill_stack(void) {
  char below[STACK];
  fill(below, sizeof below);
}
