/* Counts of startable threads and a handler of forks, by POSIX threads. Elsewhere all threads are
 * granted and nothing forks. */
#include <stdint.h>
#include <stdlib.h>
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#define POSIX
#endif

#if defined(POSIX)
static void *stay(void *gate) {
  pthread_mutex_lock(gate);
  pthread_mutex_unlock(gate);
  return NULL;
}
#endif

/* Returns how many of `number` threads are alive at once; joins them before it returns. */
int32_t pyops_try_threads(int32_t number) {
#if defined(POSIX)
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  pthread_t *threads = malloc((size_t)number * sizeof *threads);
  int32_t alive = 0;
  if (!threads) return 0;
  pthread_mutex_lock(&gate);
  while (alive < number && !pthread_create(&threads[alive], NULL, stay, &gate)) alive++;
  pthread_mutex_unlock(&gate);
  for (int32_t i = 0; i < alive; i++) pthread_join(threads[i], NULL);
  free(threads);
  return alive;
#else
  return number;
#endif
}

/* Has the system call `procedure` before each fork of this process, where processes fork. */
void pyops_before_fork(void (*procedure)(void)) {
#if defined(POSIX)
  pthread_atfork(procedure, NULL, NULL);
#else
  (void)procedure;
#endif
}
