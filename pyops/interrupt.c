/* Ctrl-C in a long call: the kernels' interrupt check, called without holding the GIL. */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <time.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#define IN_MAIN_THREAD (syscall(SYS_gettid) == getpid())
#else
#include <pthread.h>
#define IN_MAIN_THREAD pthread_main_np()
#endif
#define INTERVAL 0.1

void pyops_set_interrupt(int (*callback)(void));

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Returns whether a signal handler has raised. Python runs handlers only in the main thread; its
   calls take the GIL for them at most every INTERVAL seconds, calls of other threads never. */
static int interrupted(void) {
  static double next;
  if (seconds() < next || !IN_MAIN_THREAD) return 0;
  next = seconds() + INTERVAL;
  PyGILState_STATE state = PyGILState_Ensure();
  int raised = PyErr_CheckSignals();
  PyGILState_Release(state);
  return raised;
}

__attribute__((constructor)) static void install(void) { pyops_set_interrupt(interrupted); }
