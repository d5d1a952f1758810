// Graph attention. Arrays of numbers by heads are [rows, heads], of features [rows, heads, width].
//
// A warp has a row, or a piece of a long one, and of it as many heads as fit: `lanes` of them share
// a head, each with VECTOR columns that follow each other, and there are `across` heads in a slot.
// Where this leaves lanes over they take every other entry.
constexpr int VECTOR = 4, SLOTS = 2, WARP = 32;

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

enum Activation { LEAKY_RELU = 1, IDENTITY, RELU, SIGMOID, TANH, ELU };

__device__ inline real squashed(real x) {
  const real y = x < -80 ? real(-80) : x > 80 ? real(80) : x;
  return 1 / (1 + exp(-y));
}

__device__ inline real exp_below(real x) { return exp(x > 0 ? real(0) : x); }

__device__ inline real act(int kind, real leak, real x) {
  switch (kind) {
    case IDENTITY: return x;
    case RELU: return x <= 0 ? real(0) : x;
    case SIGMOID: return squashed(x);
    case TANH: return tanh(x);
    case ELU: return x > 0 ? x : exp_below(x) - 1;
    default: return x > 0 ? x : leak * x;
  }
}

__device__ inline real slope(int kind, real leak, real x) {
  if (is_nan(x)) return x;
  switch (kind) {
    case IDENTITY: return 1;
    case RELU: return x <= 0 ? 0 : 1;
    case SIGMOID: {
      const real s = squashed(x);
      return s * (1 - s);
    }
    case TANH: {
      const real s = tanh(x);
      return 1 - s * s;
    }
    case ELU: return exp_below(x);
    default: return x > 0 ? real(1) : leak;
  }
}

__device__ inline real curvature(int kind, real x) {
  if (is_nan(x)) return x;
  switch (kind) {
    case SIGMOID: {
      const real s = squashed(x);
      return s * (1 - s) * (1 - 2 * s);
    }
    case TANH: {
      const real s = tanh(x);
      return -2 * s * (1 - s * s);
    }
    case ELU: return x >= 0 ? real(0) : exp_below(x);
    default: return 0;
  }
}

// The scores of entries: sums of what the source, the destination and the edge have.
struct Scores {
  whole heads;
  int activation;
  real leak;
  const real *src, *dst, *edge, *mask, *top, *share;

  __device__ real raw(whole j, whole i, whole e, whole head) const {
    if (!src) return edge[e * heads + head];
    const real z = src[j * heads + head] + dst[i * heads + head];
    return edge ? z + edge[e * heads + head] : z;
  }
  __device__ real value(whole j, whole i, whole e, whole head) const {
    return act(activation, leak, raw(j, i, e, head));
  }
  __device__ real alpha(real raw, whole i, whole head) const {
    const real z = act(activation, leak, raw) - top[i * heads + head];
    return exp(z) * share[i * heads + head];
  }
  __device__ real factor(whole e, whole head) const { return mask ? mask[e * heads + head] : 1; }
  __device__ bool has_edges() const { return edge || mask; }
};

#define SCORES                                                                               \
  whole heads, whole activation, real leak, const real *src, const real *dst, const real *edge, \
      const real *mask, const real *top, const real *share
#define GIVEN_SCORES \
  { heads, static_cast<int>(activation), leak, src, dst, edge, mask, top, share }

#define SIDE(n) \
  whole rows##n, whole width##n, const real *values##n, const real *weights##n, real *numbers##n

// numbers[row, head] (+)= <weights[head], values[row, head]>, of up to three sides.
extern "C" __global__ void project(whole heads, whole accumulate, SIDE(0), SIDE(1), SIDE(2)) {
  constexpr int lanes = 8;
  whole unit = thread_number() / lanes;
  const int lane = threadIdx.x % lanes;
  const whole rows[3] = {rows0, rows1, rows2}, widths[3] = {width0, width1, width2};
  const real* const all_values[3] = {values0, values1, values2};
  const real* const all_weights[3] = {weights0, weights1, weights2};
  real* const all_numbers[3] = {numbers0, numbers1, numbers2};
  whole width = 0, head = 0;
  const real *values = 0, *weights = 0;
  real* place = 0;
#pragma unroll
  for (int side = 0; side < 3; ++side) {
    if (unit >= 0 && unit < rows[side] * heads) {
      head = unit % heads;
      width = widths[side];
      values = all_values[side] + unit * width;
      weights = all_weights[side] + head * width;
      place = all_numbers[side] + unit;
    }
    unit -= rows[side] * heads;
  }
  real sum = 0;
  for (whole c = lane; c < width; c += lanes) sum += weights[c] * values[c];
  sum = lane_sum<lanes>(sum);
  if (place && lane == 0) *place = sum + (accumulate ? *place : real(0));
}

// values[row, head] (+)= numbers[row, head] weights[head], of up to three sides; each adds or not.
extern "C" __global__ void spread(
    whole heads, SIDE(0), SIDE(1), SIDE(2), whole add0, whole add1, whole add2, real* out0,
    real* out1, real* out2) {
  whole place = thread_number();
  const whole rows[3] = {rows0, rows1, rows2}, widths[3] = {width0, width1, width2};
  const whole adds[3] = {add0, add1, add2};
  const real* const all_weights[3] = {weights0, weights1, weights2};
  const real* const all_numbers[3] = {numbers0, numbers1, numbers2};
  real* const outs[3] = {out0, out1, out2};
#pragma unroll
  for (int side = 0; side < 3; ++side) {
    const whole width = widths[side], size = rows[side] * heads * width;
    if (place >= 0 && place < size) {
      const whole unit = place / width;
      const real term =
          all_numbers[side][unit] * all_weights[side][unit % heads * width + place % width];
      outs[side][place] = term + (adds[side] ? outs[side][place] : real(0));
    }
    place -= size;
  }
}

// The sums over the rows of numbers[row, head] values[row, head, c] of up to three sides, side by
// side: first over `each` rows, by blocks that lie one side after the other; blockIdx.y counts columns.
extern "C" __global__ void sum_blocks(whole heads, whole each, SIDE(0), SIDE(1), SIDE(2),
                                      double* partial) {
  const whole rows[3] = {rows0, rows1, rows2}, widths[3] = {width0, width1, width2};
  const real* const all_values[3] = {values0, values1, values2};
  const real* const all_numbers[3] = {numbers0, numbers1, numbers2};
  const whole c = static_cast<whole>(blockIdx.y) * WARP + threadIdx.x % WARP;
  const whole line = threadIdx.x / WARP, lines = blockDim.x / WARP;
  whole block = blockIdx.x, first = 0, last = 0, width = 0;
  const real *values = 0, *numbers = 0;
#pragma unroll
  for (int side = 0; side < 3; ++side) {
    const whole blocks = (rows[side] + each - 1) / each;
    if (block >= 0 && block < blocks) {
      first = block * each;
      last = first + each < rows[side] ? first + each : rows[side];
      width = widths[side];
      values = all_values[side];
      numbers = all_numbers[side];
    }
    if (block >= blocks) partial += blocks * heads * widths[side];
    else if (block >= 0) partial += block * heads * widths[side];
    block -= blocks;
  }
  SHARED(double, sums);
  double sum = 0;
  if (c < heads * width) {
    const whole head = c / width;
#pragma unroll 4
    for (whole row = first + line; row < last; row += lines)
      sum += numbers[row * heads + head] * values[row * heads * width + c];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (line || c >= heads * width) return;
  for (whole k = 1; k < lines; ++k) sum += sums[k * WARP + threadIdx.x];
  partial[c] = sum;
}

// Then over the blocks of each side: all of these that there are, 0 for a side without any.
extern "C" __global__ void join_blocks(whole blocks0, whole size0, whole blocks1, whole size1,
                                       whole blocks2, whole size2, const double* partial,
                                       whole accumulate, real* out) {
  whole c = thread_number(), place = c;
  const whole all_blocks[3] = {blocks0, blocks1, blocks2}, sizes[3] = {size0, size1, size2};
  if (c >= size0 + size1 + size2) return;
  double sum = 0;
#pragma unroll
  for (int side = 0; side < 3; ++side) {
    if (c >= 0 && c < sizes[side])
      for (whole k = 0; k < all_blocks[side]; ++k) sum += partial[k * sizes[side] + c];
    partial += all_blocks[side] * sizes[side];
    c -= sizes[side];
  }
  out[place] = static_cast<real>(sum + (accumulate ? out[place] : real(0)));
}

// The lanes of a warp among the heads and entries of a row: `across` heads at a time, a power of two,
// and as many entries as this leaves lanes for.
struct Spread {
  int head, entry, across;
  __device__ explicit Spread(whole heads) {
    across = 1;
    while (across < heads && across < WARP) across *= 2;
    head = threadIdx.x % WARP % across;
    entry = threadIdx.x % WARP / across;
  }
  __device__ int step() const { return WARP / across; }
  template <class T>
  __device__ T sum(T value) const {
    for (int far = WARP / 2; far >= across; far /= 2) value += __shfl_xor_sync(ALL, value, far);
    return value;
  }
  __device__ real most(real value) const {
    for (int far = WARP / 2; far >= across; far /= 2)
      value = largest(value, __shfl_xor_sync(ALL, value, far));
    return value;
  }
};

// Of each destination: the largest score and one over the sum of the exponentials of what is below
// it; of a piece, that sum.
extern "C" __global__ void soften(whole pieces, whole rows, whole entries, const whole* offsets,
                                  const int* nodes, const whole* edges, SCORES, real* partial,
                                  real* tops, real* shares) {
  const whole unit = thread_number() / WARP;
  if (!pieces && unit >= rows) return;
  const Span span = pieces ? long_span(offsets, rows, entries, unit) : row_span(offsets, unit);
  if (pieces && !span.is_long) return;
  const Scores scores = GIVEN_SCORES;
  const Spread mine(heads);
  for (whole from = 0; from < heads; from += mine.across) {
    const whole head = from + mine.head;
    const bool here = head < heads;
    real most = -INFINITY;
    double sum = 0;
    if (!pieces && span.is_long) {
      for (whole p = first_piece(span); p <= last_piece(span) && here; p = next_piece(p))
        most = largest(most, partial[2 * (p * heads + head)]);
      for (whole p = first_piece(span); p <= last_piece(span) && here; p = next_piece(p)) {
        const real* const part = partial + 2 * (p * heads + head);
        sum += part[1] * exp(part[0] - most);
      }
    } else {
      for (whole k = span.start + mine.entry; k < span.end && here; k += mine.step()) {
        const whole e = scores.edge ? edges[k] - 1 : 0;
        most = largest(most, scores.value(nodes[k] - 1, span.row, e, head));
      }
      most = mine.most(most);
      for (whole k = span.start + mine.entry; k < span.end && here; k += mine.step()) {
        const whole e = scores.edge ? edges[k] - 1 : 0;
        sum += exp(scores.value(nodes[k] - 1, span.row, e, head) - most);
      }
      sum = mine.sum(sum);
    }
    if (!here || mine.entry) continue;
    const whole place = (pieces ? unit : span.row) * heads + head;
    if (pieces) {
      partial[2 * place] = most;
      partial[2 * place + 1] = static_cast<real>(sum);
    } else {
      tops[place] = most;
      shares[place] = static_cast<real>(1 / sum);
    }
  }
}

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

// out[row, head] (+)= scale sum over its entries of  weight table[node, head] + other_weight
// other[node, head], either of the two perhaps not there; weights are along the entries, or at their
// `places`.
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

// What is to be had of the entries by themselves, one head of one entry a thread, along the
// incoming rows. With t for tangents, ab = <gradient of the destination, features of the source>:
//  ALPHA   first = alpha
//  MEANS   first = alpha tz                      whose sum over a row is `mean`
//  WEIGHTS first = mask alpha, second = t of it
//  SUMS    first = alpha mask ab, second = t of it, side by side      whose sum is `sums`
//  BACK    first = the gradient by the score, second = t of it; masked = that by the mask, or t
enum Step { ALPHA = 1, MEANS, WEIGHTS, SUMS, BACK };
extern "C" __global__ void entries_alone(
    whole step, whole is_second, whole entries, const int* nodes, const whole* edges,
    const int* owners, const whole* places, SCORES, const real* tsrc, const real* tdst,
    const real* tedge, const real* tmask, const real* mean, const real* dots, const real* tdots,
    const real* sums, real* first, real* second, real* masked) {
  const whole unit = thread_number();
  if (unit >= entries * heads) return;
  const Scores scores = GIVEN_SCORES;
  const whole k = unit / heads, head = unit % heads;
  const whole j = nodes[k] - 1, i = owners[k] - 1, e = edges[k] - 1;
  const whole at = i * heads + head, place = (places ? places[k] - 1 : k) * heads + head;
  const real z = scores.raw(j, i, e, head), alpha = scores.alpha(z, i, head);
  const real factor = scores.factor(e, head);
  const real bent = slope(scores.activation, leak, z);
  real tz = 0, ts = 0, talpha = 0;
  if (is_second) {
    if (tsrc) ts = tsrc[j * heads + head] + tdst[at];
    if (tedge) ts += tedge[e * heads + head];
    tz = bent * ts;
    if (step != MEANS) talpha = alpha * (tz - mean[at]);
  }
  if (step == ALPHA) first[unit] = alpha;
  if (step == MEANS) first[unit] = alpha * tz;
  if (step == WEIGHTS) {
    first[unit] = factor * alpha;
    second[unit] = factor * talpha + (tmask ? tmask[e * heads + head] * alpha : real(0));
  }
  if (step < SUMS) return;
  const real ab = dots[place], tab = tdots ? tdots[place] : real(0);
  const real c = factor * ab;
  const real tc = factor * tab + (tmask ? tmask[e * heads + head] * ab : real(0));
  if (step == SUMS) {
    const whole double_heads = is_second ? 2 * heads : heads;
    first[k * double_heads + head] = alpha * c;
    if (is_second) first[k * double_heads + heads + head] = talpha * c + alpha * tc;
    return;
  }
  if (masked) masked[unit] = is_second ? talpha * ab + alpha * tab : alpha * ab;
  const real rest = c - sums[i * (is_second ? 2 * heads : heads) + head];
  const real by_score = bent * alpha * rest;
  first[unit] = by_score;
  if (is_second) {
    const real trest = tc - sums[i * 2 * heads + heads + head];
    second[unit] = curvature(scores.activation, z) * ts * alpha * rest +
                   bent * (talpha * rest + alpha * trest);
  } else if (second) {
    second[place] = by_score;
  }
}

// The first-order steps SUMS and BACK in one, of rows that are short: with the sums of the gradients
// by the scores of each destination, and these along the outgoing rows, at `places`; along the
// incoming ones and those by the mask where asked.
extern "C" __global__ void pull_rows(whole rows, const whole* offsets, const int* nodes,
                                     const whole* edges, const whole* places, SCORES,
                                     const real* dots, real* by_dst, real* by_place,
                                     real* by_entry, real* masked) {
  const whole unit = thread_number() / WARP;
  if (unit >= rows) return;
  const Span span = row_span(offsets, unit);
  const Scores scores = GIVEN_SCORES;
  const Spread mine(heads);
  for (whole from = 0; from < heads; from += mine.across) {
    const whole head = from + mine.head;
    const bool here = head < heads;
    real sum = 0, total = 0;
    for (whole k = span.start + mine.entry; k < span.end && here; k += mine.step()) {
      const whole e = scores.has_edges() ? edges[k] - 1 : 0;
      const real alpha = scores.alpha(scores.raw(nodes[k] - 1, unit, e, head), unit, head);
      const real ab = dots[(places[k] - 1) * heads + head];
      sum += alpha * scores.factor(e, head) * ab;
      if (masked) masked[k * heads + head] = alpha * ab;
    }
    sum = mine.sum(sum);
    for (whole k = span.start + mine.entry; k < span.end && here; k += mine.step()) {
      const whole e = scores.has_edges() ? edges[k] - 1 : 0;
      const real z = scores.raw(nodes[k] - 1, unit, e, head);
      const whole place = (places[k] - 1) * heads + head;
      const real rest = scores.factor(e, head) * dots[place] - sum;
      const real by_score =
          slope(scores.activation, leak, z) * scores.alpha(z, unit, head) * rest;
      total += by_score;
      by_place[place] = by_score;
      if (by_entry) by_entry[k * heads + head] = by_score;
    }
    total = mine.sum(total);
    if (here && mine.entry == 0) by_dst[unit * heads + head] = total;
  }
}
