/* Linked in the place of malloc (ld --wrap): arrays that Fortran allocates begin with a cache line,
 * for a vector that crosses two takes twice as long; malloc gives a quarter of a line. */
#include <stdlib.h>

#define LINE 64
#define SMALL 1024 /* bytes, and less: malloc is faster */

void *__real_malloc(size_t bytes);

/* `used`: where all of the library is one compilation, calls of malloc appear after it. */
__attribute__((used, visibility("hidden"))) void *__wrap_malloc(size_t bytes) {
  void *memory;
  if (bytes > SMALL && posix_memalign(&memory, LINE, bytes) == 0) return memory;
  return __real_malloc(bytes);
}
