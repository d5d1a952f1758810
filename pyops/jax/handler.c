/* A single handler of XLA's foreign function interface for all calls; it passes their text and
   buffers to Python. The structs declared here are prefixes of those of the interface, which later
   versions of major version 0 only extend, so no rebuild is needed for another jaxlib. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

enum { METADATA = 1, INTERNAL = 13, RESOURCE_EXHAUSTED = 8, CANCELLED = 1, EXECUTE = 3 };
enum { S32 = 4, S64 = 5, F32 = 11, F64 = 12 };

typedef struct Extension {
  size_t size;
  int type;
  struct Extension *next;
} Extension;

typedef struct {
  size_t size;
  Extension *extension;
  int major, minor;
} Version;

typedef struct {
  size_t size;
  Version version;
  uint32_t traits;
} Metadata;

typedef struct {
  Extension base;
  Metadata *metadata;
} MetadataExtension;

typedef struct {
  size_t size;
  Extension *extension;
  const char *message;
  int code;
} ErrorArguments;

typedef struct {
  size_t size;
  Extension *extension;
  Version version;
  const void *internal;
  void *(*create_error)(ErrorArguments *);
} Api;

typedef struct {
  size_t size;
  Extension *extension;
  int dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
} Buffer;

typedef struct {
  size_t size;
  Extension *extension;
  int64_t count;
  int *types;
  void **items;
} List;

typedef struct {
  const char *start;
  size_t length;
} Text;

typedef struct {
  size_t size;
  Extension *extension;
  int64_t count;
  int *types;
  Text **names;
  void **values;
} Attributes;

typedef struct {
  size_t size;
  Extension *extension;
  const Api *api;
  void *context;
  int stage;
  List arguments, results;
  Attributes attributes;
} Frame;

static PyObject *callback;

static Py_ssize_t item_size(int dtype) { return dtype == S32 || dtype == F32 ? 4 : 8; }

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

static void *execute(const Frame *frame) {
  PyObject *inputs = views(&frame->arguments, PyBUF_READ);
  PyObject *outputs = inputs ? views(&frame->results, PyBUF_WRITE) : NULL;
  const Text *text = frame->attributes.values[0];
  PyObject *done = outputs ? PyObject_CallFunction(callback, "y#OO", text->start,
                                                   (Py_ssize_t)text->length, inputs, outputs)
                           : NULL;
  void *made = done ? NULL : raised(frame);
  Py_XDECREF(done);
  Py_XDECREF(inputs);
  Py_XDECREF(outputs);
  return made;
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
  PyGILState_STATE state = PyGILState_Ensure();
  void *made = execute(frame);
  PyGILState_Release(state);
  return made;
}

static PyObject *target(PyObject *self, PyObject *function) {
  (void)self;
  Py_INCREF(function);
  Py_XSETREF(callback, function);
  return PyCapsule_New((void *)handle, "xla._CUSTOM_CALL_TARGET", NULL);
}

static PyMethodDef methods[] = {
    {"target", target, METH_O, "The handler, which calls a function of text, inputs, outputs."},
    {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_handler", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__handler(void) { return PyModule_Create(&module); }
