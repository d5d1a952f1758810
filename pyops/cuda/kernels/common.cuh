// Definitions shared by all kernels. Graph indices are 1-based, everything else is 0-based.
typedef REAL real;
typedef long long whole;

#ifndef HALF_TO_FLOAT
// Converts the bits of float16. An instruction by name, as CUDA's header of the type may be absent.
__device__ inline float half_to_float(unsigned bits) {
  float number;
  asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(static_cast<unsigned short>(bits)));
  return number;
}
#define HALF_TO_FLOAT half_to_float
#endif

// Half-precision numbers in memory. They convert to float wherever they are used.
struct bfloat16 {
  unsigned short bits;
  __device__ static float widen(unsigned bits) { return __uint_as_float(bits << 16); }
  __device__ operator float() const { return widen(bits); }
};
struct float16 {
  unsigned short bits;
  __device__ static float widen(unsigned bits) { return HALF_TO_FLOAT(bits); }
  __device__ operator float() const { return widen(bits); }
};

// Type of features and cotangents in memory: real, or a type of half precision.
typedef FEATURE feature;

#ifndef SHARED
#define SHARED(type, name)                                      \
  extern __shared__ __align__(16) unsigned char name##_bytes[]; \
  type* const name = reinterpret_cast<type*>(name##_bytes)
#endif

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

constexpr unsigned ALL = 0xffffffffu;

// Rows with more entries than this are split into segments (`segments`), whose sums are combined.
constexpr whole SEGMENT = 256;

__device__ inline whole thread_number() {
  return static_cast<whole>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// Quotient of non-negative numbers, in 32 bits where they fit: a 64-bit division is a long routine.
__device__ inline whole quotient(whole a, whole b) {
  if ((a | b) >> 32) return a / b;
  return static_cast<unsigned>(a) / static_cast<unsigned>(b);
}

// Sum over `lanes` adjacent lanes, returned in all of them; called by whole warps.
template <int lanes, class T>
__device__ inline T lane_sum(T value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(ALL, value, step);
  return value;
}

__device__ inline bool is_nan(real x) { return x != x; }

// Logarithm of the largest number.
constexpr real LOG_HUGE = sizeof(real) == 4 ? real(88.72283905206835) : real(709.782712893384);

// Maximum that propagates NaN.
__device__ inline real largest(real a, real b) { return a >= b || is_nan(a) ? a : b; }

template <int lanes>
__device__ inline real lane_max(real value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2)
    value = largest(value, __shfl_xor_sync(ALL, value, step));
  return value;
}

// Row that contains an entry, by binary search; both 0-based.
__device__ inline whole row_of(const whole* offsets, whole rows, whole entry) {
  whole low = 0, high = rows;
  while (high - low > 1) {
    const whole middle = low + (high - low) / 2;
    if (offsets[middle] - 1 <= entry) low = middle;
    else high = middle;
  }
  return low;
}

// Entries [start, end) of one row.
struct Span {
  whole row, start, end;
  bool is_long;  // the row is summed in segments
};

__device__ inline Span row_span(const whole* offsets, whole row) {
  const whole start = offsets[row] - 1, end = offsets[row + 1] - 1;
  return {row, start, end, end - start > SEGMENT};
}

// Segment `number` of the long rows. The entries are split at multiples of SEGMENT. Between two
// splits lie entries of at most two long rows, at the start and at the end: segments 2i and 2i + 1.
// Empty if there is no such row.
__device__ inline Span long_span(const whole* offsets, whole rows, whole entries, whole number) {
  const whole cut = number / 2 * SEGMENT;
  const whole next = cut + SEGMENT < entries ? cut + SEGMENT : entries;
  if (cut >= entries) return {0, 0, 0, false};
  Span span = row_span(offsets, row_of(offsets, rows, number % 2 ? next - 1 : cut));
  if (!span.is_long || (number % 2 && span.start <= cut)) return {span.row, 0, 0, false};
  if (span.start < cut) span.start = cut;
  if (span.end > next) span.end = next;
  return span;
}

// The segments of a long row are `first_segment`, then every second one from the next even number.
__device__ inline whole first_segment(const Span& row) {
  return row.start / SEGMENT * 2 + (row.start % SEGMENT ? 1 : 0);
}

__device__ inline whole last_segment(const Span& row) { return (row.end - 1) / SEGMENT * 2; }

__device__ inline whole next_segment(whole number) { return number / 2 * 2 + 2; }
