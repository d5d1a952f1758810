// Features by heads, [rows, heads, width], gathered along the rows of a graph.
//
// A warp has a row, or a piece of a long one, and of it as many heads as fit: `lanes` of them share
// a head, each with VECTOR columns that follow each other, and there are `across` heads in a slot.
// Where this leaves lanes over they take every other entry.
#include "scores.cuh"

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

__device__ inline bool is_aligned(const real* table, whole width) {
  return width % VECTOR == 0 && reinterpret_cast<unsigned long long>(table) % 16 == 0;
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
  real at[SLOTS][VECTOR];
};

// To out[row, head, column..], or to the partial sums of a piece; or these together.
__device__ inline void store(const Layout& mine, const Span& span, bool pieces, whole heads,
                             whole width, const Gathered& from, Accumulators& sums, real* partial,
                             bool accumulate, real* out) {
#pragma unroll
  for (int slot = 0; slot < SLOTS; ++slot) {
    const whole head = mine.head + slot * mine.across;
#pragma unroll
    for (int c = 0; c < VECTOR; ++c) {
      real sum = mine.over_entries(sums.at[slot][c]);
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
      *place = sum * from.scale + (accumulate ? *place : real(0));
    }
  }
}

#define ROWS                                                                                  \
  whole pieces, whole rows, whole entries, const whole *offsets, const int *nodes, whole lanes, \
      whole across, whole parts, whole width
#define GATHERED const real *table, whole stride, whole by_head, real scale

// out[row, head] (+)= scale sum over its entries of  factor alpha table[node, head].
template <bool back>
__device__ inline void attend_rows(const Layout& mine, const Span& span, bool pieces,
                                   const Scores& scores, const Gathered& from, whole width,
                                   const int* nodes, const whole* edges, real* partial,
                                   bool accumulate, real* out) {
  const bool aligned = is_aligned(from.table, width);
  Accumulators sums = {};
  if (pieces || !span.is_long) {
#pragma unroll 2
    for (whole k = span.start + mine.entry; k < span.end; k += mine.step) {
      const whole node = nodes[k] - 1, edge_id = scores.has_edges() ? edges[k] - 1 : 0;
      const whole j = back ? span.row : node, i = back ? node : span.row;
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        const whole head = mine.head + slot * mine.across;
        if (head >= scores.heads || mine.column >= width) continue;
        const real* const row = from.table + node * from.stride + head * from.by_head;
        const Vector x = load(row, mine.column, width, aligned);
        const real alpha = scores.alpha(scores.raw(j, i, edge_id, head), i, head);
        const real weight = scores.factor(edge_id, head) * alpha;
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) sums.at[slot][c] += weight * x.at[c];
      }
    }
  }
  store(mine, span, pieces, scores.heads, width, from, sums, partial, accumulate, out);
}

#define ATTEND                                                                           \
  ROWS, const whole *edges, SCORES, GATHERED, real *partial, whole accumulate, real *out
#define CALL_ATTEND(back)                                                                    \
  const Layout mine(lanes, across, parts);                                                   \
  if (!pieces && mine.unit >= rows) return;                                                  \
  const Span span =                                                                          \
      pieces ? long_span(offsets, rows, entries, mine.unit) : row_span(offsets, mine.unit);  \
  const Scores scores = GIVEN_SCORES;                                                        \
  const Gathered from = {table, stride, by_head, scale};                                     \
  attend_rows<back>(mine, span, pieces, scores, from, width, nodes, edges, partial, accumulate, out)

// Rows are destinations,
extern "C" __global__ void attend(ATTEND) { CALL_ATTEND(false); }

// or sources.
extern "C" __global__ void attend_out(ATTEND) { CALL_ATTEND(true); }

// out[row, head] (+)= scale sum over its entries of
//   weight table[node, head] + other_weight other[node, head],
// either of the two perhaps not there; weights are along the entries, or at their `places`.
extern "C" __global__ void gather(ROWS, const whole* places, whole heads, const real* weights,
                                  const real* other_weights, const real* other, GATHERED,
                                  real* partial, whole accumulate, real* out) {
  const Layout mine(lanes, across, parts);
  if (!pieces && mine.unit >= rows) return;
  const Span span =
      pieces ? long_span(offsets, rows, entries, mine.unit) : row_span(offsets, mine.unit);
  const Gathered from = {table, stride, by_head, scale};
  const bool aligned = is_aligned(table, width), other_aligned = is_aligned(other, width);
  Accumulators sums = {};
  if (pieces || !span.is_long) {
#pragma unroll 2
    for (whole k = span.start + mine.entry; k < span.end; k += mine.step) {
      const whole node = nodes[k] - 1, place = places ? places[k] - 1 : k;
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        const whole head = mine.head + slot * mine.across;
        if (head >= heads || mine.column >= width) continue;
        const whole row = node * stride + head * by_head;
        if (weights) {
          const Vector x = load(table + row, mine.column, width, aligned);
          const real weight = weights[place * heads + head];
#pragma unroll
          for (int c = 0; c < VECTOR; ++c) sums.at[slot][c] += weight * x.at[c];
        }
        if (other_weights) {
          const Vector x = load(other + row, mine.column, width, other_aligned);
          const real weight = other_weights[place * heads + head];
#pragma unroll
          for (int c = 0; c < VECTOR; ++c) sums.at[slot][c] += weight * x.at[c];
        }
      }
    }
  }
  store(mine, span, pieces, heads, width, from, sums, partial, accumulate, out);
}

// Over the outgoing rows at one reading of the gradients of the destinations: the products of each
// with the features of the source,  dots[k, head] = scale <table[i, head], x[j, head]>,  and as
// `attend_out` does, if `out` is there. The heads are not in several parts.
extern "C" __global__ void attend_back(ROWS, const whole* edges, SCORES, GATHERED, const real* x,
                                       real* dots, real* partial, whole accumulate, real* out) {
  const Layout mine(lanes, across, 1);
  if (!pieces && mine.unit >= rows) return;
  const Span span =
      pieces ? long_span(offsets, rows, entries, mine.unit) : row_span(offsets, mine.unit);
  const Scores scores = GIVEN_SCORES;
  const Gathered from = {table, stride, by_head, scale};
  const bool aligned = is_aligned(table, width), x_aligned = is_aligned(x, width);
  Accumulators sums = {};
  Vector own[SLOTS] = {};
#pragma unroll
  for (int slot = 0; slot < SLOTS; ++slot) {
    const whole head = mine.head + slot * mine.across;
    if (head < heads)
      own[slot] = load(x + (span.row * heads + head) * width, mine.column, width, x_aligned);
  }
  if (pieces || !span.is_long) {
#pragma unroll 2
    for (whole start = span.start; start < span.end; start += mine.step) {
      const whole k = start + mine.entry;
      const bool here = k < span.end;
      const whole i = here ? nodes[k] - 1 : 0;
      const whole edge_id = here && scores.has_edges() ? edges[k] - 1 : 0;
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        const whole head = mine.head + slot * mine.across;
        const bool mine_too = here && head < heads;
        real product = 0;
        if (mine_too) {
          const Vector g =
              load(table + i * stride + head * by_head, mine.column, width, aligned);
#pragma unroll
          for (int c = 0; c < VECTOR; ++c) product += g.at[c] * own[slot].at[c];
          if (out) {
            const real alpha = scores.alpha(scores.raw(span.row, i, edge_id, head), i, head);
            const real weight = scores.factor(edge_id, head) * alpha;
#pragma unroll
            for (int c = 0; c < VECTOR; ++c) sums.at[slot][c] += weight * g.at[c];
          }
        }
        product = mine.over_lanes(product);
        if (mine_too && threadIdx.x % mine.lanes == 0) dots[k * heads + head] = scale * product;
      }
    }
  }
  if (out) store(mine, span, pieces, heads, width, from, sums, partial, accumulate, out);
}

// dots[k, head] = scale <table[i, head], x[j, head]> of all entries, and with `other` in the place
// of x; a group of 8 lanes has a number.
extern "C" __global__ void multiply(whole entries, whole heads, whole width, const int* sources,
                                    const int* destinations, GATHERED, const real* x,
                                    whole x_stride, whole x_by_head, const real* other,
                                    real* dots, real* other_dots) {
  constexpr int lanes = 8;
  const whole unit = thread_number() / lanes;
  const int lane = threadIdx.x % lanes;
  const bool here = unit < entries * heads;
  const whole k = here ? unit / heads : 0, head = unit % heads;
  real sum = 0, other_sum = 0;
  if (here) {
    const whole place = (sources[k] - 1) * x_stride + head * x_by_head;
    const real* const gradient = table + (destinations[k] - 1) * stride + head * by_head;
    for (whole c = lane; c < width; c += lanes) {
      sum += gradient[c] * x[place + c];
      if (other) other_sum += gradient[c] * other[place + c];
    }
  }
  sum = lane_sum<lanes>(sum);
  other_sum = lane_sum<lanes>(other_sum);
  if (!here || lane) return;
  dots[unit] = scale * sum;
  if (other) other_dots[unit] = scale * other_sum;
}

// (+)= the mean over the heads.
extern "C" __global__ void average(whole rows, whole heads, whole width, const real* values,
                                   whole accumulate, real* out) {
  const whole place = thread_number();
  if (place >= rows * width) return;
  const whole row = place / width, c = place % width;
  real sum = 0;
  for (whole head = 0; head < heads; ++head) sum += values[(row * heads + head) * width + c];
  out[place] = sum / heads + (accumulate ? out[place] : real(0));
}
