/* The kernels as functions of their arguments in an array. */
#include <stdint.h>

typedef union {
  int64_t integer;
  double real;
  void *address;
} Slot;

typedef struct {
  const char *name;                  /* <operator>_<phase>_<kind> */
  int32_t (*run)(const Slot *slots); /* returns the status */
} Kernel;

extern const Kernel kernels[]; /* ends with a row without name */
