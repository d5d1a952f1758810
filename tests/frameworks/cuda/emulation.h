// CUDA C++ on a host: the lanes of a block are fibers, run one at a time until each waits or ends.
// The functions of CUDA use these lanes, so they are one file.
//
// The order in which blocks, warps and lanes have their turns is chosen by the caller: results that
// depend on it have a race. Lanes that leave or that wait in different lines where all have to meet
// are an error, as they are undefined on a device.
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __shared__ static
#define SHARED(type, name) type* const name = reinterpret_cast<type*>(emulation::shared)
#define threadIdx (emulation::now->thread)
#define blockIdx emulation::block_index
#define blockDim emulation::block_size
#define gridDim emulation::grid_size

struct float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct bfloat16;
struct float16;

inline float __uint_as_float(unsigned bits) {
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}

// Number with the bits of float16; subnormal ones have the unit 2**-24.
inline float widened_half(unsigned bits) {
  const unsigned sign = (bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (!exponent) return (sign ? -1.0f : 1.0f) * ldexpf(static_cast<float>(fraction), -24);
  return __uint_as_float(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}
#define HALF_TO_FLOAT widened_half

namespace emulation {
struct Dim {
  unsigned x, y, z;
};
enum Wait { ready, at_warp, at_block, over };
constexpr int warp = 32, most = 1024;
constexpr size_t stack_size = 1 << 17, shared_size = 227 << 10;

struct Lane {
  Dim thread;
  unsigned number;
  Wait wait;
  int line, parity;
  bool begun;
  jmp_buf place;
  ucontext_t start;
  unsigned char value[2][16];
};

static Lane lanes[most];
static char* stacks;
static Lane* now;
static jmp_buf host;
static ucontext_t back;
static Dim block_index, block_size, grid_size;
alignas(16) static unsigned char shared[shared_size];
static char message[200];
static void (*body)(void**);
static void** body_args;

inline void yield() {
  if (!_setjmp(now->place)) _longjmp(host, 1);
}

inline void wait(Wait what, int line) {
  now->wait = what;
  now->line = line;
  yield();
}

inline void fiber() {
  for (;;) {
    body(body_args);
    now->wait = over;
    yield();
  }
}

inline void resume(Lane& lane) {
  now = &lane;
  lane.wait = ready;
  if (_setjmp(host)) return;
  if (lane.begun) _longjmp(lane.place, 1);
  lane.begun = true;
  getcontext(&lane.start);
  lane.start.uc_stack.ss_sp = stacks + lane.number * stack_size;
  lane.start.uc_stack.ss_size = stack_size;
  lane.start.uc_link = &back;
  makecontext(&lane.start, fiber, 0);
  setcontext(&lane.start);
}

// The turn-th of `count` in the requested order: as numbered, reversed, or mixed.
inline unsigned turn_of(unsigned turn, unsigned count, int order) {
  if (order == 0) return turn;
  if (order == 1) return count - 1 - turn;
  unsigned step = 2 * order + 3;
  for (;; ++step) {
    unsigned a = step, b = count;
    while (b) {
      unsigned rest = a % b;
      a = b;
      b = rest;
    }
    if (a == 1) break;
  }
  return static_cast<unsigned>((static_cast<uint64_t>(turn) * step + order) % count);
}

inline bool fail(const char* text, const Lane& lane) {
  snprintf(message, sizeof message, "block (%u, %u), lane %u, line %d: %s", block_index.x,
           block_index.y, lane.number, lane.line, text);
  for (Lane& some : lanes) some.begun = false;
  return false;
}

// All of them have ended, or wait for each other in one line.
inline bool meet(Lane* some, unsigned count, Wait& what) {
  what = some[0].wait;
  for (unsigned i = 1; i < count; ++i)
    if (some[i].wait != what || (what != over && some[i].line != some[0].line))
      return fail("not all lanes come here", some[i].wait == over ? some[0] : some[i]);
  return true;
}

inline bool run_warp(Lane* some, unsigned count, int order, Wait& what) {
  for (;;) {
    for (unsigned i = 0; i < count; ++i) resume(some[turn_of(i, count, order)]);
    if (!meet(some, count, what)) return false;
    if (what != at_warp) return true;
  }
}

inline bool run_block(int order, unsigned bytes) {
  const unsigned size = block_size.x * block_size.y, warps = (size + warp - 1) / warp;
  memset(shared, 0xff, bytes);
  for (unsigned i = 0; i < size; ++i) {
    lanes[i].thread = {i % block_size.x, i / block_size.x, 0};
    lanes[i].number = i;
    lanes[i].parity = 0;
  }
  for (;;) {
    Wait what = over, all = over;
    for (unsigned i = 0; i < warps; ++i) {
      const unsigned first = warp * turn_of(i, warps, order);
      const unsigned count = size - first < warp ? size - first : warp;
      if (!run_warp(lanes + first, count, order, what)) return false;
    }
    if (!meet(lanes, size, all)) return false;
    if (all == over) return true;
  }
}

// 0, or 1 with a message.
inline int run_grid(const unsigned* dims, unsigned bytes, int order) {
  grid_size = {dims[0], dims[1], 1};
  block_size = {dims[2], dims[3], 1};
  if (!stacks) stacks = static_cast<char*>(malloc(most * stack_size));
  const unsigned blocks = dims[0] * dims[1];
  for (unsigned i = 0; i < blocks; ++i) {
    const unsigned which = turn_of(i, blocks, order);
    block_index = {which % dims[0], which / dims[0], 0};
    if (!run_block(order, bytes)) return 1;
  }
  return 0;
}

template <class A>
const char* code() {
  using B = std::remove_cv_t<std::remove_pointer_t<A>>;
  constexpr bool points = std::is_pointer_v<A>;
  if (std::is_same_v<B, float>) return points ? "*f," : "f,";
  if (std::is_same_v<B, double>) return points ? "*d," : "d,";
  if (std::is_same_v<B, int>) return points ? "*i," : "i,";
  if (std::is_same_v<B, long long>) return points ? "*q," : "q,";
  if (std::is_same_v<B, bfloat16>) return "*h,";
  if (std::is_same_v<B, float16>) return "*e,";
  return "?,";
}

template <class... A>
const char* codes(void (*)(A...)) {
  static char text[4 * sizeof...(A) + 1];
  text[0] = 0;
  const char* all[] = {code<A>()...};
  for (const char* one : all) strcat(text, one);
  return text;
}

template <auto kernel, class... A, size_t... I>
void unpack(void (*)(A...), void** args, std::index_sequence<I...>) {
  kernel(*static_cast<A*>(args[I])...);
}

template <auto kernel, class... A>
auto body_of(void (*)(A...)) {
  return +[](void** args) {
    unpack<kernel>(static_cast<void (*)(A...)>(kernel), args, std::index_sequence_for<A...>());
  };
}

template <class T>
inline T exchange(T value, unsigned lane, int line) {
  static_assert(sizeof(T) <= 16);
  Lane* const self = now;
  const int parity = self->parity;
  self->parity = !parity;
  memcpy(self->value[parity], &value, sizeof(T));
  wait(at_warp, line);
  const unsigned size = block_size.x * block_size.y, first = self->number / warp * warp;
  memcpy(&value, lanes[first + lane < size ? first + lane : self->number].value[parity], sizeof(T));
  return value;
}
}  // namespace emulation

#define CALLER_LINE int line = __builtin_LINE()
inline void __syncthreads(CALLER_LINE) { emulation::wait(emulation::at_block, line); }
inline void __syncwarp(unsigned = 0xffffffffu, CALLER_LINE) {
  emulation::wait(emulation::at_warp, line);
}

// `width` lanes exchange values among themselves; the source of a lane without one is itself.
template <class T>
inline T __shfl_sync(unsigned, T value, int source, int width = 32, CALLER_LINE) {
  const int lane = emulation::now->number % 32;
  return emulation::exchange(value, lane / width * width + (source & (width - 1)), line);
}

template <class T>
inline T __shfl_xor_sync(unsigned, T value, int step, int width = 32, CALLER_LINE) {
  const int lane = emulation::now->number % 32, other = lane ^ step;
  return emulation::exchange(value, other / width > lane / width ? lane : other, line);
}

template <class T>
inline T __shfl_down_sync(unsigned, T value, int step, int width = 32, CALLER_LINE) {
  const int lane = emulation::now->number % 32, other = lane + step;
  return emulation::exchange(value, other / width > lane / width ? lane : other, line);
}

template <class T>
inline T __shfl_up_sync(unsigned, T value, int step, int width = 32, CALLER_LINE) {
  const int lane = emulation::now->number % 32, other = lane - step;
  return emulation::exchange(value, other < lane / width * width ? lane : other, line);
}

inline unsigned __ballot_sync(unsigned, int predicate, CALLER_LINE) {
  unsigned votes = 0;
  for (int i = 0; i < 32; ++i) votes |= (emulation::exchange(predicate, i, line) ? 1u : 0u) << i;
  return votes;
}

inline int __any_sync(unsigned mask, int predicate, CALLER_LINE) {
  return __ballot_sync(mask, predicate, line) != 0;
}

template <class T>
inline T __ldg(const T* place) {
  return *place;
}

template <class T>
inline T max(T a, T b) {
  return a > b ? a : b;
}
template <class T>
inline T min(T a, T b) {
  return a < b ? a : b;
}
inline float rsqrt(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }

// Entry points for the host: the kinds of a kernel's arguments, and its execution.
#define EMULATE(kernel)                                                                       \
  extern "C" const char* kernel##_arguments() { return emulation::codes(kernel); }            \
  extern "C" int kernel##_run(void** args, const unsigned* dims, unsigned bytes, int order) { \
    emulation::body = emulation::body_of<kernel>(kernel);                                     \
    emulation::body_args = args;                                                              \
    return emulation::run_grid(dims, bytes, order);                                           \
  }                                                                                           \
  extern "C" const char* kernel##_message() { return emulation::message; }
