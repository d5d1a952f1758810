/* Types of the tables that are generated from the declarations. */
#pragma once
#include <cstddef>
#include <cstdint>

namespace pyops_torch {

using Wide = __int128; /* products of sizes */

template <class T>
struct Range {
  const T *first;
  int count;
  const T *begin() const { return first; }
  const T *end() const { return first + count; }
  const T &operator[](size_t i) const { return first[i]; }
  size_t size() const { return static_cast<size_t>(count); }
};

struct Size {
  const char *text;
  uint64_t names; /* bits of the sizes in it */
  Wide (*value)(const Wide *known);
};

using Shape = Range<Size>;

struct SizeName {
  const char *text;
  int least;
};

struct Input {
  const char *name;
  Shape forms[2]; /* of different ranks */
  int form_count;
  bool optional;
  bool rows; /* whether its type determines that of the result */
};

enum class Kind { SIZE, FLAG, CHOICE, NUMBER };

struct Option {
  const char *name;
  Kind kind;
  int size;
  Range<const char *> choices;
  int64_t least, most;
};

/* Option that is row numbers, used for one choice of another. */
struct Indexed {
  const char *name, *length_text;
  int length, option, code;
  const char *condition;
  bool reverses;
};

/* Size that follows from an option of this code or, if `option` is -1, from an absent input. */
struct Following {
  int option, code, name;
  Size size;
};

struct UpTo {
  int name, most;
};

/* Sizes that have to be equal if a flag is set. */
struct Equal {
  int option, one, other;
};

/* Index arrays, as bits, that a kernel takes and does not read if an input is absent. */
struct Unread {
  int input;
  uint32_t arrays;
};

enum { ALWAYS = -1, NO_SHARED = -2 };

struct Operator {
  const char *name;
  bool has_graph;
  Range<SizeName> sizes;
  Range<Input> inputs;
  Range<Option> options;
  Range<Indexed> indexed;
  Range<Following> following;
  Range<Equal> equal;
  Range<UpTo> at_most;
  Range<int> one_of;
  Range<Unread> unread;
  Shape output, attention;
};

/* Where a kernel's argument comes from. */
enum class From {
  SIZE,
  OPTION,
  ROWS,
  INDEX,
  TENSOR,
  OUTPUT,
  PACKED,
  THREADS,
  ACCUMULATE,
  PRESENT,
  WANTED,
  GIVEN,
  SHARED_EDGES
};

struct Source {
  From from;
  int number;
};

enum class Step { FORWARD, BACKWARD, DOUBLE_BACKWARD, JVP, ATTENTION };

struct Phase {
  const Operator *op;
  Step step;
  const char *caller, *name, *schema;
  const char *traced; /* schema of the variant that takes integers as tensors, or NULL */
  int kernels[2];     /* for float and double */
  Range<Source> arguments;
};

}  // namespace pyops_torch
