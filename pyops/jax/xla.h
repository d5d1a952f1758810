/* XLA's foreign function interface, as far as the handler uses it. The structs are prefixes of
   those of XLA, which later versions of major version 0 only extend, so no rebuild is needed for
   another jaxlib. */
#include <stddef.h>
#include <stdint.h>

enum { METADATA = 1, INTERNAL = 13, RESOURCE_EXHAUSTED = 8, CANCELLED = 1, EXECUTE = 3 };
enum { S32 = 4, S64 = 5, F32 = 11, F64 = 12, BF16 = 16 };

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
