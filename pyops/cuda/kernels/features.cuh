// Features by heads, [rows, heads, width], gathered along the rows of a graph.
//
// A warp processes one row, or one segment of a long row, and as many heads of it as fit. `lanes`
// lanes share a head, each with VECTOR consecutive columns; a slot has `across` heads. Remaining
// groups of lanes process different entries.
//
// VECTOR features fill 16 bytes, or 32 in float64; each type has as many columns in registers.
constexpr int VECTOR = sizeof(feature) == 2 ? 8 : 4, SLOTS = 8 / VECTOR;

struct Vector {
  real at[VECTOR];
};

// Loads 16 aligned bytes of numbers.
__device__ inline void load_word(const float* from, real* to) {
  const float4 four = *reinterpret_cast<const float4*>(from);
  to[0] = four.x, to[1] = four.y, to[2] = four.z, to[3] = four.w;
}

__device__ inline void load_word(const double* from, real* to) {
  const double2 two = *reinterpret_cast<const double2*>(from);
  to[0] = two.x, to[1] = two.y;
}

template <class half>
__device__ inline void load_word(const half* from, real* to) {
  const uint4 four = *reinterpret_cast<const uint4*>(from);
  const unsigned pairs[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    to[2 * n] = half::widen(pairs[n] & 0xffff);
    to[2 * n + 1] = half::widen(pairs[n] >> 16);
  }
}

__device__ inline void save_word(float* to, const real* from) {
  *reinterpret_cast<float4*>(to) = {from[0], from[1], from[2], from[3]};
}

__device__ inline void save_word(double* to, const real* from) {
  *reinterpret_cast<double2*>(to) = {from[0], from[1]};
}

// Loads VECTOR columns from `first` < width of a row, with 0 beyond its width.
template <class T>
__device__ inline Vector load(const T* row, whole first, whole width, bool aligned) {
  constexpr int each = 16 / sizeof(T);
  Vector v = {};
  if (aligned) {
#pragma unroll
    for (int c = 0; c < VECTOR; c += each) load_word(row + first + c, v.at + c);
  } else {
#pragma unroll
    for (int c = 0; c < VECTOR; ++c)
      if (first + c < width) v.at[c] = row[first + c];
  }
  return v;
}

// Stores what `load` reads.
__device__ inline void save(real* row, whole first, whole width, bool aligned, const Vector& v) {
  constexpr int each = 16 / sizeof(real);
  if (aligned) {
#pragma unroll
    for (int c = 0; c < VECTOR; c += each) save_word(row + first + c, v.at + c);
  } else {
#pragma unroll
    for (int c = 0; c < VECTOR; ++c)
      if (first + c < width) row[first + c] = v.at[c];
  }
}

// Whether the rows of all tables that are given are aligned for vector accesses.
template <class... T>
__device__ inline bool is_aligned(whole width, const T*... tables) {
  return width % VECTOR == 0 && ((reinterpret_cast<unsigned long long>(tables) | ...) % 16 == 0);
}

__device__ inline void add(Vector& sum, real weight, const Vector& x) {
#pragma unroll
  for (int c = 0; c < VECTOR; ++c) sum.at[c] += weight * x.at[c];
}

__device__ inline real product(const Vector& x, const Vector& y) {
  real sum = 0;
#pragma unroll
  for (int c = 0; c < VECTOR; ++c) sum += x.at[c] * y.at[c];
  return sum;
}

// Sum of the columns of a row of one table and of a row of another; an absent table is 0.
__device__ inline Vector both(const feature* one, whole at, const feature* other, whole place,
                              whole first, whole width, bool aligned) {
  Vector sum = {};
  if (one) sum = load(one + at, first, width, aligned);
  if (other) add(sum, 1, load(other + place, first, width, aligned));
  return sum;
}

struct Accumulators {
  Vector at[SLOTS];
};

struct Layout {
  whole unit;  // row or segment
  int lanes, across, entry, step;  // first entry of this lane, and its stride
  whole head, column;

  __device__ Layout(whole lanes_, whole across_, whole parts_)
      : unit(thread_number() / WARP), lanes(static_cast<int>(lanes_)),
        across(static_cast<int>(across_)) {
    const int lane = threadIdx.x % WARP, parts = static_cast<int>(parts_);
    const int part = blockIdx.y % parts;
    entry = lane / (lanes * across);
    step = WARP / (lanes * across);
    head = blockIdx.y / parts * (SLOTS * across) + lane / lanes % across;
    column = (part * lanes + lane % lanes) * VECTOR;
  }

  __device__ whole head_of(int slot) const { return head + slot * across; }
  __device__ bool has(int slot, whole heads, whole width) const {
    return head_of(slot) < heads && column < width;
  }

  // Sums over the lanes that process different entries.
  __device__ void over_entries(Accumulators& sums) const {
    for (int far = WARP / 2; far >= lanes * across; far /= 2) {
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
#pragma unroll
        for (int c = 0; c < VECTOR; ++c)
          sums.at[slot].at[c] += __shfl_xor_sync(ALL, sums.at[slot].at[c], far);
      }
    }
  }

  // Sums over the lanes that share a head.
  template <int count>
  __device__ void over_lanes(real (&values)[count]) const {
    for (int far = lanes / 2; far > 0; far /= 2) {
#pragma unroll
      for (int n = 0; n < count; ++n) values[n] += __shfl_xor_sync(ALL, values[n], far);
    }
  }
};

struct Gathered {
  const feature* table;  // features of the nodes at the other end
  whole stride, by_head;  // strides between rows and between heads
  real scale;
};

// Stores sums to out[row, head, column..], or to the partial sums of a segment, or combines these.
__device__ inline void store(const Layout& mine, const Span& span, bool segments, whole heads,
                             whole width, real scale, Accumulators& sums, real* partial,
                             bool accumulate, real* out) {
  mine.over_entries(sums);
  if (mine.entry || (segments && !span.is_long)) return;
  const bool aligned = is_aligned(width, partial, out);
  const whole size = heads * width;
#pragma unroll
  for (int slot = 0; slot < SLOTS; ++slot) {
    if (!mine.has(slot, heads, width)) continue;
    Vector sum = sums.at[slot];
    const whole first = mine.head_of(slot) * width;
    if (segments) {
      save(partial + mine.unit * size + first, mine.column, width, aligned, sum);
      continue;
    }
    if (span.is_long) {
      double total[VECTOR] = {};
      for (whole p = first_segment(span); p <= last_segment(span); p = next_segment(p)) {
        const Vector part = load(partial + p * size + first, mine.column, width, aligned);
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) total[c] += part.at[c];
      }
#pragma unroll
      for (int c = 0; c < VECTOR; ++c) sum.at[c] = static_cast<real>(total[c]);
    }
    real* const row = out + span.row * size + first;
    Vector to = {};
    if (accumulate) to = load(row, mine.column, width, aligned);
    add(to, scale, sum);
    save(row, mine.column, width, aligned, to);
  }
}

#define ROWS                                                                                      \
  whole segments, whole rows, whole entries, const whole *offsets, const int *nodes, whole lanes, \
      whole across, whole parts, whole width
#define GATHERED const feature *table, whole stride, whole by_head, real scale
