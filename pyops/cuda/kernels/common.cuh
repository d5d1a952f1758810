// What all kernels share. Indices of graphs count from 1, everything else from 0.
typedef REAL real;
typedef long long whole;

#ifndef SHARED
#define SHARED(type, name)                                      \
  extern __shared__ __align__(16) unsigned char name##_bytes[]; \
  type* const name = reinterpret_cast<type*>(name##_bytes)
#endif

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif

constexpr unsigned ALL = 0xffffffffu;

// Rows of more entries than this are summed in pieces.
constexpr whole PIECE = 256;

__device__ inline whole thread_number() {
  return static_cast<whole>(blockIdx.x) * blockDim.x + threadIdx.x;
}

// The sum over `lanes` neighbouring lanes, in all of them; whole warps take part.
template <int lanes, class T>
__device__ inline T lane_sum(T value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2) value += __shfl_xor_sync(ALL, value, step);
  return value;
}

__device__ inline bool is_nan(real x) { return x != x; }

// The larger; a NaN stays.
__device__ inline real largest(real a, real b) { return a >= b || is_nan(a) ? a : b; }

template <int lanes>
__device__ inline real lane_max(real value) {
#pragma unroll
  for (int step = lanes / 2; step > 0; step /= 2)
    value = largest(value, __shfl_xor_sync(ALL, value, step));
  return value;
}

// The row of an entry, both from 0.
__device__ inline whole row_of(const whole* offsets, whole rows, whole entry) {
  whole low = 0, high = rows;
  while (high - low > 1) {
    const whole middle = low + (high - low) / 2;
    if (offsets[middle] - 1 <= entry) low = middle;
    else high = middle;
  }
  return low;
}

// Some entries of one row, from `start` to before `end`.
struct Span {
  whole row, start, end;
  bool is_long;  // the row is summed in pieces
};

__device__ inline Span row_span(const whole* offsets, whole row) {
  const whole start = offsets[row] - 1, end = offsets[row + 1] - 1;
  return {row, start, end, end - start > PIECE};
}

// Piece `number` of the long rows: entries are cut at the multiples of PIECE, and what lies
// between two cuts holds entries of two long rows at most, at its start and at its end. Empty where
// there is no such row.
__device__ inline Span long_span(const whole* offsets, whole rows, whole entries, whole number) {
  const whole cut = number / 2 * PIECE;
  const whole next = cut + PIECE < entries ? cut + PIECE : entries;
  if (cut >= entries) return {0, 0, 0, false};
  Span span = row_span(offsets, row_of(offsets, rows, number % 2 ? next - 1 : cut));
  if (!span.is_long || (number % 2 && span.start <= cut)) return {span.row, 0, 0, false};
  if (span.start < cut) span.start = cut;
  if (span.end > next) span.end = next;
  return span;
}

// The pieces of a long row are `first_piece` and every second one from the next even number.
__device__ inline whole first_piece(const Span& row) {
  return row.start / PIECE * 2 + (row.start % PIECE ? 1 : 0);
}

__device__ inline whole last_piece(const Span& row) { return (row.end - 1) / PIECE * 2; }

__device__ inline whole next_piece(whole number) { return number / 2 * 2 + 2; }
