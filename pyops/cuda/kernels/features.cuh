// Features by heads, [rows, heads, width], gathered along the rows of a graph.
//
// A warp has a row, or a piece of a long one, and of it as many heads as fit: `lanes` of them share
// a head, each with VECTOR columns that follow each other, and there are `across` heads in a slot.
// Where this leaves lanes over they take every other entry.
constexpr int VECTOR = 4, SLOTS = 2;

struct Vector {
  real at[VECTOR];
};

// Columns from `first` of a row, 0 beyond its width.
__device__ inline Vector load(const real* row, whole first, whole width, bool aligned) {
  Vector v = {};
  if (aligned && first + VECTOR <= width) {
#ifdef REAL_IS_FLOAT
    const float4 four = *reinterpret_cast<const float4*>(row + first);
    v.at[0] = four.x, v.at[1] = four.y, v.at[2] = four.z, v.at[3] = four.w;
#else
    const double2 low = *reinterpret_cast<const double2*>(row + first);
    const double2 high = *reinterpret_cast<const double2*>(row + first + 2);
    v.at[0] = low.x, v.at[1] = low.y, v.at[2] = high.x, v.at[3] = high.y;
#endif
  } else {
#pragma unroll
    for (int c = 0; c < VECTOR; ++c)
      if (first + c < width) v.at[c] = row[first + c];
  }
  return v;
}

__device__ inline unsigned long long address(const real* table) {
  return reinterpret_cast<unsigned long long>(table);
}

// Whether the rows of all tables that are there begin where vectors may.
__device__ inline bool is_aligned(whole width, const real* one, const real* two = 0,
                                  const real* three = 0, const real* four = 0) {
  const unsigned long long all = address(one) | address(two) | address(three) | address(four);
  return width % VECTOR == 0 && all % 16 == 0;
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

// Columns of a row of one table and of one of another, added up, as far as there are any.
__device__ inline Vector both(const real* one, whole at, const real* other, whole place,
                              whole first, whole width, bool aligned) {
  Vector sum = {};
  if (one) sum = load(one + at, first, width, aligned);
  if (other) add(sum, 1, load(other + place, first, width, aligned));
  return sum;
}

struct Layout {
  whole unit;                   // row or piece
  int lanes, across, entry, step;  // the first entry of this lane, and how far the next is
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

  // The sum over the lanes that have other entries.
  __device__ real over_entries(real value) const {
    for (int far = WARP / 2; far >= lanes * across; far /= 2)
      value += __shfl_xor_sync(ALL, value, far);
    return value;
  }

  // The sum over the lanes of a head.
  __device__ real over_lanes(real value) const {
    for (int far = lanes / 2; far > 0; far /= 2) value += __shfl_xor_sync(ALL, value, far);
    return value;
  }
};

struct Gathered {
  const real* table;     // features of the rows at the other ends
  whole stride, by_head;  // from row to row, from head to head
  real scale;
};

struct Accumulators {
  Vector at[SLOTS];
};

// To out[row, head, column..], or to the partial sums of a piece; or these together.
__device__ inline void store(const Layout& mine, const Span& span, bool pieces, whole heads,
                             whole width, real scale, Accumulators& sums, real* partial,
                             bool accumulate, real* out) {
#pragma unroll
  for (int slot = 0; slot < SLOTS; ++slot) {
    const whole head = mine.head + slot * mine.across;
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
      real sum = mine.over_entries(sums.at[slot].at[c]);
      const whole column = mine.column + c;
      if (mine.entry || head >= heads || column >= width) continue;
      const whole within = head * width + column;
      if (pieces) {
        if (span.is_long) partial[mine.unit * heads * width + within] = sum;
        continue;
      }
      if (span.is_long) {
        double whole_sum = 0;
        for (whole p = first_piece(span); p <= last_piece(span); p = next_piece(p))
          whole_sum += partial[p * heads * width + within];
        sum = static_cast<real>(whole_sum);
      }
      real* const place = out + span.row * heads * width + within;
      *place = scale * sum + (accumulate ? *place : real(0));
    }
  }
}

#define ROWS                                                                                  \
  whole pieces, whole rows, whole entries, const whole *offsets, const int *nodes, whole lanes, \
      whole across, whole parts, whole width
#define GATHERED const real *table, whole stride, whole by_head, real scale
#define TERM(n)                                                                           \
  const real *weights##n, const real *table##n, whole stride##n, whole by_head##n, real scale##n, \
      const real *of_edge##n
