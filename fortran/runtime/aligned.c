/* Replaces malloc (ld --wrap) to align arrays that Fortran allocates to cache lines. malloc returns
 * addresses a quarter of a line past a boundary: 64-byte vectors would straddle two lines each. */
#include <stdlib.h>

#define LINE 64
#define SMALL 1024 /* bytes up to which malloc is used, as it is faster */

void *__real_malloc(size_t bytes);

/* `used`: link-time optimisation may generate calls of malloc after it drops unused functions. */
__attribute__((used, visibility("hidden"))) void *__wrap_malloc(size_t bytes) {
  void *memory;
  if (bytes > SMALL && posix_memalign(&memory, LINE, bytes) == 0) return memory;
  return __real_malloc(bytes);
}
