// Graph attention: the kernels on arrays by heads, without features: scores, softmax, their VJPs.
// One source, as NVRTC compiles each alone and the kernels share their types.
#include "scores.cuh"
#include "features.cuh"

template <class T>
struct Side {
  whole rows, width;
  T* values;
  real* scores;
  const real* weights;
  bool adds;
};

#define SIDE(type, n) \
  whole rows##n, whole width##n, type *values##n, const real *weights##n, real *scores##n
#define SIDES(type) SIDE(type, 0), SIDE(type, 1), SIDE(type, 2)
#define GIVEN_SIDES(adds) {GIVEN_SIDE(0, adds), GIVEN_SIDE(1, adds), GIVEN_SIDE(2, adds)}
#define GIVEN_SIDE(n, adds) {rows##n, width##n, values##n, scores##n, weights##n, adds >> n & 1}

// Selects the side of a unit (row and head) counted across all sides; sets `unit` within that side.
template <class T>
__device__ inline Side<T> side_of(const Side<T> (&sides)[3], whole heads, whole& unit) {
  Side<T> found = {};
  whole left = unit;
#pragma unroll
  for (int n = 0; n < 3; ++n) {
    const whole size = sides[n].rows * heads;
    if (left >= 0 && left < size) found = sides[n], unit = left;
    left -= size;
  }
  return found;
}

// scores[row, head] (+)= <weights[head], values[row, head]>, for up to three sides. The bits of
// `adds` select the outputs that accumulate. Here and in `spread`, 8 lanes process a row and head.
extern "C" __global__ void project(whole heads, whole adds, SIDES(const feature)) {
  constexpr int lanes = 8;
  const int lane = threadIdx.x % lanes;
  whole unit = thread_number() / lanes;
  const Side<const feature> of = side_of<const feature>(GIVEN_SIDES(adds), heads, unit);
  const real* const weights = of.weights + (unit - quotient(unit, heads) * heads) * of.width;
  const bool aligned = is_aligned(of.width, of.values, of.weights);
  real sum = 0;
  for (whole c = lane * VECTOR; c < of.width; c += lanes * VECTOR)
    sum += product(load(weights, c, of.width, aligned),
                   load(of.values + unit * of.width, c, of.width, aligned));
  sum = lane_sum<lanes>(sum);
  if (of.scores && lane == 0) of.scores[unit] = sum + (of.adds ? of.scores[unit] : real(0));
}

// values[row, head] (+)= scores[row, head] weights[head].
extern "C" __global__ void spread(whole heads, whole adds, SIDES(real)) {
  constexpr int lanes = 8;
  whole unit = thread_number() / lanes;
  const Side<real> of = side_of<real>(GIVEN_SIDES(adds), heads, unit);
  const real* const weights = of.weights + (unit - quotient(unit, heads) * heads) * of.width;
  real* const values = of.values + unit * of.width;
  const bool aligned = is_aligned(of.width, of.values, of.weights);
  for (whole c = threadIdx.x % lanes * VECTOR; c < of.width; c += lanes * VECTOR) {
    Vector to = {};
    if (of.adds) to = load(values, c, of.width, aligned);
    add(to, of.scores[unit], load(weights, c, of.width, aligned));
    save(values, c, of.width, aligned, to);
  }
}

// Sums of scores[row, head] values[row, head, c] over the rows of up to three sides: partial sums
// over blocks of `each` rows, stored side after side. blockIdx.y counts columns.
extern "C" __global__ void sum_blocks(whole heads, whole each, SIDES(const feature),
                                      double* partial) {
  const whole rows[3] = {rows0, rows1, rows2}, widths[3] = {width0, width1, width2};
  const feature* const all_values[3] = {values0, values1, values2};
  const real* const all_scores[3] = {scores0, scores1, scores2};
  const whole c = static_cast<whole>(blockIdx.y) * WARP + threadIdx.x % WARP;
  const whole line = threadIdx.x / WARP, lines = blockDim.x / WARP;
  whole block = blockIdx.x, first = 0, last = 0, width = 0;
  const feature* values = 0;
  const real* scores = 0;
#pragma unroll
  for (int side = 0; side < 3; ++side) {
    const whole blocks = (rows[side] + each - 1) / each;
    if (block >= 0 && block < blocks) {
      first = block * each;
      last = first + each < rows[side] ? first + each : rows[side];
      width = widths[side];
      values = all_values[side];
      scores = all_scores[side];
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
      sum += scores[row * heads + head] * values[row * heads * width + c];
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (line || c >= heads * width) return;
  for (whole k = 1; k < lines; ++k) sum += sums[k * WARP + threadIdx.x];
  partial[c] = sum;
}

// Sums the partial results over the blocks of each side; 0 for a side without any. A warp processes
// a column.
extern "C" __global__ void join_blocks(whole blocks0, whole size0, whole blocks1, whole size1,
                                       whole blocks2, whole size2, const double* partial,
                                       whole accumulate, real* out) {
  const whole place = thread_number() / WARP, lane = threadIdx.x % WARP;
  const whole all_blocks[3] = {blocks0, blocks1, blocks2}, sizes[3] = {size0, size1, size2};
  if (place >= size0 + size1 + size2) return;
  whole c = place;
  double sum = 0;
#pragma unroll
  for (int side = 0; side < 3; ++side) {
    if (c >= 0 && c < sizes[side])
      for (whole k = lane; k < all_blocks[side]; k += WARP) sum += partial[k * sizes[side] + c];
    partial += all_blocks[side] * sizes[side];
    c -= sizes[side];
  }
  sum = lane_sum<WARP>(sum);
  if (lane == 0) out[place] = static_cast<real>(sum + (accumulate ? out[place] : real(0)));
}

// Distributes the lanes of a warp over heads and entries of a row: `across` heads at a time, a
// power of two, and as many entries as lanes remain for.
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
};

// Running maximum of scores, and the sum of exp(score - maximum) (online softmax).
struct Total {
  real most = -INFINITY;
  double sum = 0;

  __device__ void add(real other, double of_other) {
    const real share = other == most ? real(1) : exp(other < most ? other - most : most - other);
    sum = other > most ? sum * share + of_other : sum + of_other * share;
    most = largest(most, other);
  }
};

// Softmax statistics of each destination: the largest score and one over the sum of exp(score -
// maximum); for a segment, the sum itself. If `weights` is given, also stores factor times alpha of
// each entry. With `by_entry`, `edge` is in CSC order. The scores of HELD entries per lane are
// computed at a time, and once only if there are no more.
extern "C" __global__ void softmax(whole segments, whole rows, whole entries, const whole* offsets,
                                   const int* nodes, const whole* edges, whole by_entry, SCORES,
                                   real* partial, real* tops, real* shares, real* weights) {
  constexpr int HELD = 8;
  const whole unit = thread_number() / WARP;
  if (!segments && unit >= rows) return;
  const Span span = segments ? long_span(offsets, rows, entries, unit) : row_span(offsets, unit);
  if (segments && !span.is_long) return;
  const Scores scores = GIVEN_SCORES;
  const Spread mine(heads);
  const int step = mine.step();
  for (int from = 0; from < scores.heads; from += mine.across) {
    const int head = from + mine.head;
    const bool here = head < scores.heads;
    const whole end = here ? span.end : span.start;
    const real of_row = here ? scores.of(span.row, head) : real(0);
    real score[HELD];
    const auto compute = [&](whole start) {
#pragma unroll
      for (int n = 0; n < HELD; ++n) {
        const whole k = start + n * step + mine.entry;
        score[n] = -INFINITY;
        if (k >= end) continue;
        const whole e = scores.edge && !by_entry ? edges[k] - 1 : k;
        score[n] = scores.act(scores.raw(of_row, nodes[k] - 1, e, head)).value;
      }
    };
    const bool once = span.end - span.start <= HELD * step;
    real top = -INFINITY;
    double sum = 0;
    if (!segments && span.is_long) {
      Total total;
      for (whole p = first_segment(span); p <= last_segment(span) && here; p = next_segment(p)) {
        const real* const part = partial + 2 * (p * heads + head);
        total.add(part[0], part[1]);
      }
      top = total.most, sum = total.sum;
    } else {
      for (whole start = span.start; start < span.end; start += HELD * step) {
        compute(start);
#pragma unroll
        for (int n = 0; n < HELD; ++n) top = largest(top, score[n]);
      }
      for (int far = WARP / 2; far >= mine.across; far /= 2)
        top = largest(top, __shfl_xor_sync(ALL, top, far));
      for (whole start = span.start; start < span.end; start += HELD * step) {
        if (!once) compute(start);
#pragma unroll
        for (int n = 0; n < HELD; ++n)
          if (start + n * step + mine.entry < end)
            sum += score[n] == top ? real(1) : exp(score[n] - top);
      }
      sum = mine.sum(sum);
    }
    const real share = static_cast<real>(1 / sum);
    if (here && mine.entry == 0) {
      const whole place = (segments ? unit : span.row) * heads + head;
      if (segments) {
        partial[2 * place] = top;
        partial[2 * place + 1] = static_cast<real>(sum);
      } else {
        tops[place] = top;
        shares[place] = share;
      }
    }
    if (!weights) continue;
    for (whole start = span.start; start < span.end; start += HELD * step) {
      if (!once) compute(start);
#pragma unroll
      for (int n = 0; n < HELD; ++n) {
        const whole k = start + n * step + mine.entry;
        if (k >= end) continue;
        const whole e = scores.mask ? edges[k] - 1 : 0;
        weights[k * heads + head] = scores.factor(e, head) * (exp(score[n] - top) * share);
      }
    }
  }
}

// Per-entry steps, one thread per entry and head, in CSC order. With the prefix t for tangents and
// ab = <gradient of the destination, features of the source>:
//  ALPHA   first = alpha
//  MEANS   first = alpha tz                      whose sum over a row is `mean`
//  WEIGHTS first = mask alpha, second = its tangent
//  SUMS    first = alpha mask ab, second = its tangent, side by side  whose sum is `sums`
//  BACK    first = gradient by the score, second = its tangent; masked = gradient by the mask, or
//          its tangent
// With `by_entry`, `edge` and `tedge` are in CSC order.
enum Step { ALPHA = 1, MEANS, WEIGHTS, SUMS, BACK };
extern "C" __global__ void entries_alone(whole step, whole is_second, whole by_entry, whole entries,
                                         const int* nodes, const whole* edges, const int* owners,
                                         const whole* places, SCORES, const real* tsrc,
                                         const real* tdst, const real* tedge, const real* tmask,
                                         const real* mean, const real* dots, const real* tdots,
                                         const real* sums, real* first, real* second,
                                         real* masked) {
  const whole unit = thread_number();
  if (unit >= entries * heads) return;
  const Scores scores = GIVEN_SCORES;
  const whole k = quotient(unit, heads);
  const int head = static_cast<int>(unit - k * heads);
  const whole i = owners[k] - 1, e = edges[k] - 1;
  const int j = nodes[k] - 1;
  const whole at = i * heads + head, place = (places ? places[k] - 1 : k) * heads + head;
  const whole scored = by_entry ? k : e;
  const Activated score = scores.act(scores.raw(scores.of(i, head), j, scored, head));
  const real alpha = exp(score.value - top[at]) * share[at];
  const real factor = scores.factor(e, head);
  real tz = 0, ts = 0, talpha = 0;
  if (is_second) {
    if (tsrc) ts = tsrc[static_cast<whole>(j) * heads + head] + tdst[at];
    if (tedge) ts += tedge[scored * heads + head];
    tz = score.slope * ts;
    if (step != MEANS) talpha = alpha * (tz - mean[at]);
  }
  if (step == ALPHA) first[unit] = alpha;
  if (step == MEANS) first[unit] = alpha * tz;
  if (step == WEIGHTS) {
    first[unit] = factor * alpha;
    if (second)
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
  const real by_score = score.slope * alpha * rest;
  first[unit] = by_score;
  if (is_second) {
    const real trest = tc - sums[i * 2 * heads + heads + head];
    second[unit] =
        score.curvature * ts * alpha * rest + score.slope * (talpha * rest + alpha * trest);
  } else if (second) {
    second[place] = by_score;
  }
}

// Fused first-order SUMS and BACK for rows that are not split, with the weights known. Stores the
// gradients by the scores, summed for each destination, and in CSR order (`places`); optionally
// also in CSC order, and the gradients by the mask.
extern "C" __global__ void scores_vjp(whole rows, const whole* offsets, const int* nodes,
                                      const whole* edges, const whole* places, SCORES,
                                      const real* weights, const real* dots, real* by_dst,
                                      real* by_place, real* by_entry, real* masked) {
  const whole unit = thread_number() / WARP;
  if (unit >= rows) return;
  const Span span = row_span(offsets, unit);
  const Scores scores = GIVEN_SCORES;
  const Spread mine(heads);
  for (int from = 0; from < scores.heads; from += mine.across) {
    const int head = from + mine.head;
    const bool here = head < scores.heads;
    const whole end = here ? span.end : span.start, at = unit * heads + head;
    real sum = 0, total = 0, of_row = 0, its_top = 0, its_share = 0;
    if (here) of_row = scores.of(unit, head), its_top = top[at], its_share = share[at];
#pragma unroll 4
    for (whole k = span.start + mine.entry; k < end; k += mine.step())
      sum += weights[k * heads + head] * dots[(places[k] - 1) * heads + head];
    sum = mine.sum(sum);
#pragma unroll 4
    for (whole k = span.start + mine.entry; k < end; k += mine.step()) {
      const whole e = scores.has_edges() ? edges[k] - 1 : 0;
      const whole place = (places[k] - 1) * heads + head;
      const Activated score = scores.act(scores.raw(of_row, nodes[k] - 1, e, head));
      const real ab = dots[place], alpha = exp(score.value - its_top) * its_share;
      const real by_score = score.slope * alpha * (scores.factor(e, head) * ab - sum);
      total += by_score;
      by_place[place] = by_score;
      if (by_entry) by_entry[k * heads + head] = by_score;
      if (masked) masked[k * heads + head] = alpha * ab;
    }
    total = mine.sum(total);
    if (here && mine.entry == 0) by_dst[at] = total;
  }
}
