/* A single handler of XLA's foreign function interface for all calls. Passes text and buffers of a
   call to Python, which executes it or returns a plan. Calls of equal text and indices then reach
   the kernel by this plan, without Python and the GIL. One source, as what its
   parts share is static. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "calls.h"
#include "pyops.h"
#include "xla.h"

/* Arguments of a kernel for all calls of one text and, if any, equal indices. */
typedef struct Plan {
  struct Plan *next;
  uint64_t hash;
  const Kernel *kernel;
  const Slot *slots;        /* arguments that are equal in all calls */
  const int32_t *sources;   /* for each argument the number of its buffer, or CONSTANT or TEAM */
  int count;
  const char *no_memory;    /* message */
  Text text;
  Py_buffer *indices;       /* contents of the leading buffers for which this is the plan */
  Py_ssize_t index_count;   /* 0 if they are constants of the program */
  PyObject *graph, *fields; /* `fields` owns the memory that plan and arguments point to */
  atomic_int users;         /* calls in progress */
} Plan;

enum { CONSTANT = -1, TEAM = -2 };
enum { BUCKETS = 256, MOST_PLANS = 1000 };

static PyObject *callback;
static const int32_t *thread_limits; /* set_num_threads or 0, threads available then, quota */
static Plan *plans[BUCKETS];
static int plan_count;
static Plan *retired; /* plans removed from `plans` that may be in use; guarded by the GIL */
/* Guards `plans`, which change only with the GIL held. No holder waits for the GIL. */
static pthread_rwlock_t plans_lock = PTHREAD_RWLOCK_INITIALIZER;

static Py_ssize_t item_size(int dtype) {
  return dtype == BF16 ? 2 : dtype == S32 || dtype == F32 ? 4 : 8;
}

static PyObject *views(const List *list, int flags) {
  static char nothing;
  PyObject *found = PyTuple_New((Py_ssize_t)list->count);
  for (int64_t i = 0; found && i < list->count; i++) {
    const Buffer *buffer = list->items[i];
    Py_ssize_t bytes = item_size(buffer->dtype);
    for (int64_t axis = 0; axis < buffer->rank; axis++) bytes *= (Py_ssize_t)buffer->dims[axis];
    PyObject *view = PyMemoryView_FromMemory(bytes ? buffer->data : &nothing, bytes, flags);
    if (view) PyTuple_SET_ITEM(found, (Py_ssize_t)i, view);
    else Py_CLEAR(found);
  }
  return found;
}

static void *error(const Frame *frame, int code, const char *message) {
  ErrorArguments arguments = {sizeof arguments, NULL, message, code};
  return frame->api->create_error(&arguments);
}

/* Converts the current Python exception to an XLA error. */
static void *raised(const Frame *frame) {
  PyObject *type, *value, *trace;
  int code = PyErr_ExceptionMatches(PyExc_MemoryError)         ? RESOURCE_EXHAUSTED
             : PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) ? CANCELLED
                                                               : INTERNAL;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  PyObject *shown = value ? PyObject_Str(value) : NULL;
  const char *message = shown ? PyUnicode_AsUTF8(shown) : NULL;
  void *made = error(frame, code, message ? message : "pyops: an error without words");
  PyErr_Clear();
  Py_XDECREF(shown);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return made;
}

static uint64_t hash_of(const Text *text) {
  uint64_t hash = 14695981039346656037u; /* FNV-1a, by words */
  size_t i = 0;
  for (uint64_t word; i + sizeof word <= text->length; i += sizeof word) {
    memcpy(&word, text->start + i, sizeof word);
    hash = (hash ^ word) * 1099511628211u;
    hash ^= hash >> 32;
  }
  for (; i < text->length; i++) hash = (hash ^ (unsigned char)text->start[i]) * 1099511628211u;
  return hash;
}

static int fits(const Plan *plan, const Frame *frame, const Text *text, uint64_t hash) {
  if (plan->hash != hash || plan->text.length != text->length ||
      memcmp(plan->text.start, text->start, text->length))
    return 0;
  for (Py_ssize_t i = 0; i < plan->index_count; i++) {
    const Buffer *buffer = frame->arguments.items[i];
    const Py_buffer *expected = &plan->indices[i];
    if (expected->len && memcmp(buffer->data, expected->buf, (size_t)expected->len)) return 0;
  }
  return 1;
}

/* Returns the plan of a call, in use, or NULL. */
static Plan *find(const Frame *frame, const Text *text, uint64_t hash) {
  pthread_rwlock_rdlock(&plans_lock);
  Plan *plan = plans[hash % BUCKETS];
  while (plan && !fits(plan, frame, text, hash)) plan = plan->next;
  if (plan) atomic_fetch_add(&plan->users, 1);
  pthread_rwlock_unlock(&plans_lock);
  return plan;
}

static void free_plan(Plan *plan) {
  for (Py_ssize_t i = 0; i < plan->index_count; i++) PyBuffer_Release(&plan->indices[i]);
  PyMem_Free(plan->indices);
  Py_XDECREF(plan->fields);
  PyMem_Free(plan);
}

/* Removes the plans of a graph, or all; those in use are freed by a later call of this. */
static void retire(const PyObject *graph) {
  pthread_rwlock_wrlock(&plans_lock);
  for (int i = 0; i < BUCKETS; i++) {
    for (Plan **place = &plans[i], *plan; (plan = *place);) {
      if (graph && plan->graph != graph) {
        place = &plan->next;
        continue;
      }
      *place = plan->next;
      plan->next = retired;
      retired = plan;
      plan_count--;
    }
  }
  pthread_rwlock_unlock(&plans_lock);
  for (Plan **place = &retired, *plan; (plan = *place);) {
    if (atomic_load(&plan->users)) {
      place = &plan->next;
      continue;
    }
    *place = plan->next;
    free_plan(plan);
  }
}

/* Makes the plan that Python described, in use. */
static Plan *make_plan(PyObject *fields, uint64_t hash) {
  PyObject *indices, *owner;
  Py_ssize_t kernel, slot_bytes, source_bytes, text_bytes;
  const char *slots, *sources;
  Plan *plan = PyMem_Calloc(1, sizeof *plan);
  if (!plan) return (Plan *)PyErr_NoMemory();
  plan->fields = Py_NewRef(fields);
  plan->hash = hash;
  if (!PyArg_ParseTuple(fields, "y#ny#y#sO!OO:plan", &plan->text.start, &text_bytes, &kernel,
                        &slots, &slot_bytes, &sources, &source_bytes, &plan->no_memory,
                        &PyTuple_Type, &indices, &plan->graph, &owner))
    goto failed;
  plan->text.length = (size_t)text_bytes;
  plan->kernel = &kernels[kernel];
  plan->slots = (const Slot *)slots;
  plan->sources = (const int32_t *)sources;
  plan->count = (int)(source_bytes / (Py_ssize_t)sizeof *plan->sources);
  Py_ssize_t count = PyTuple_GET_SIZE(indices);
  plan->indices = PyMem_Calloc((size_t)count + 1, sizeof *plan->indices);
  if (!plan->indices) {
    PyErr_NoMemory();
    goto failed;
  }
  for (; plan->index_count < count; plan->index_count++) {
    PyObject *array = PyTuple_GET_ITEM(indices, plan->index_count);
    if (PyObject_GetBuffer(array, &plan->indices[plan->index_count], PyBUF_SIMPLE)) goto failed;
  }
  atomic_init(&plan->users, 1);
  return plan;
failed:
  free_plan(plan);
  return NULL;
}

/* Executes a call by Python, or returns the plan that it made, in use. */
static Plan *prepare(const Frame *frame, const Text *text, uint64_t hash, void **failure) {
  PyObject *inputs = views(&frame->arguments, PyBUF_READ);
  PyObject *outputs = inputs ? views(&frame->results, PyBUF_WRITE) : NULL;
  PyObject *done = outputs ? PyObject_CallFunction(callback, "y#OO", text->start,
                                                   (Py_ssize_t)text->length, inputs, outputs)
                           : NULL;
  Plan *plan = done && done != Py_None ? make_plan(done, hash) : NULL;
  if (PyErr_Occurred()) *failure = raised(frame);
  Py_XDECREF(done);
  Py_XDECREF(inputs);
  Py_XDECREF(outputs);
  if (!plan) return NULL;
  if (plan_count >= MOST_PLANS) retire(NULL);
  pthread_rwlock_wrlock(&plans_lock);
  plan->next = plans[hash % BUCKETS];
  plans[hash % BUCKETS] = plan;
  plan_count++;
  pthread_rwlock_unlock(&plans_lock);
  return plan;
}

/* Returns the team size, as `team` in _call/threads.py. */
static int32_t team(void) {
  static pthread_mutex_t trial = PTHREAD_MUTEX_INITIALIZER;
  static _Thread_local int32_t started = 1;
  int32_t chosen = thread_limits[0], available = pyops_available_threads(), number = available;
  if (!chosen) {
    int32_t processors = pyops_available_processors(), quota = thread_limits[2];
    if (processors < number) number = processors;
    if (quota < number) number = quota;
  } else if (chosen < number || available >= thread_limits[1]) {
    number = chosen;
  }
  if (number > started) {
    pthread_mutex_lock(&trial);
    pyops_startable_threads(number, &started);
    pthread_mutex_unlock(&trial);
  }
  return number < started ? number : started;
}

static void *call(const Frame *frame, const Plan *plan) {
  Slot slots[plan->count];
  for (int i = 0; i < plan->count; i++) {
    int64_t source = plan->sources[i], results = source - frame->arguments.count;
    if (source == CONSTANT) slots[i] = plan->slots[i];
    else if (source == TEAM) slots[i].integer = team();
    else if (results < 0) slots[i].address = ((Buffer *)frame->arguments.items[source])->data;
    else slots[i].address = ((Buffer *)frame->results.items[results])->data;
  }
  int32_t status = plan->kernel->run(slots);
  if (status == 0) return NULL;
  if (status != PYOPS_INTERRUPTED) return error(frame, RESOURCE_EXHAUSTED, plan->no_memory);
  PyGILState_STATE state = PyGILState_Ensure(); /* a signal handler has raised */
  void *made = raised(frame);
  PyGILState_Release(state);
  return made;
}

static void *execute(const Frame *frame) {
  const Text *text = frame->attributes.values[0];
  /* JAX holds the GIL during programs that it runs on the thread of the caller. */
  PyThreadState *caller = PyGILState_Check() ? PyEval_SaveThread() : NULL;
  uint64_t hash = hash_of(text);
  Plan *plan = find(frame, text, hash);
  void *failure = NULL;
  if (!plan) {
    PyGILState_STATE state = PyGILState_Ensure();
    plan = prepare(frame, text, hash, &failure);
    PyGILState_Release(state);
  }
  if (plan) {
    failure = call(frame, plan);
    atomic_fetch_sub(&plan->users, 1);
  }
  if (caller) PyEval_RestoreThread(caller);
  return failure;
}

static void *handle(Frame *frame) {
  for (Extension *e = frame->extension; e; e = e->next) {
    if (e->type == METADATA) {
      Version *version = &((MetadataExtension *)e)->metadata->version;
      version->major = frame->api ? frame->api->version.major : 0;
      version->minor = frame->api ? frame->api->version.minor : 0;
      return NULL;
    }
  }
  if (frame->api->version.major != 0)
    return error(frame, INTERNAL, "pyops: expected version 0 of XLA's foreign function interface");
  if (frame->stage != EXECUTE) return NULL;
  if (frame->attributes.count != 1 || !callback)
    return error(frame, INTERNAL, "pyops: a call without its text");
  return execute(frame);
}

static PyObject *target(PyObject *self, PyObject *arguments) {
  static Py_buffer limits;
  PyObject *function;
  (void)self;
  if (!PyArg_ParseTuple(arguments, "Oy*:target", &function, &limits)) return NULL;
  thread_limits = limits.buf;
  Py_INCREF(function);
  Py_XSETREF(callback, function);
  return PyCapsule_New((void *)handle, "xla._CUSTOM_CALL_TARGET", NULL);
}

static PyObject *forget(PyObject *self, PyObject *graph) {
  (void)self;
  retire(graph);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"target", target, METH_VARARGS,
     "Return the handler. It calls a function of text, inputs and outputs, and reads the limits of "
     "the number of threads from an array."},
    {"forget", forget, METH_O, "Forget the plans of a graph."},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_handler", NULL, -1, methods, NULL, NULL, NULL, NULL};

/* Adds `kernels`, the number of each by its name. */
PyMODINIT_FUNC PyInit__handler(void) {
  PyObject *made = PyModule_Create(&module), *table = made ? PyDict_New() : NULL;
  for (int i = 0; table && kernels[i].name; i++) {
    PyObject *number = PyLong_FromLong(i);
    if (!number || PyDict_SetItemString(table, kernels[i].name, number)) Py_CLEAR(table);
    Py_XDECREF(number);
  }
  if (!table || PyModule_AddObjectRef(made, "kernels", table)) Py_CLEAR(made);
  Py_XDECREF(table);
  return made;
}
