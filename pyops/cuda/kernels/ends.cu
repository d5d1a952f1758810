// Scores  <a, act(r)>  of entries and heads with  r = x_j + y_i (+ f_e),  and their VJPs.
#include "scores.cuh"
#include "features.cuh"

// Sum of the columns of one head over three table rows at given offsets; an absent table is 0.
__device__ inline Vector sum_of(const feature* one, const feature* two, const feature* three,
                                whole at_one, whole at_two, whole at_three, whole column,
                                whole width, bool aligned) {
  Vector sum = both(one, at_one, two, at_two, column, width, aligned);
  if (three) add(sum, 1, load(three + at_three, column, width, aligned));
  return sum;
}

#define ENDS                                                                                \
  whole activation, real leak, const feature *src, const feature *dst, const feature *edge, \
      const feature *dsrc, const feature *ddst, const feature *dedge, const real *a,        \
      const real *da
#define R sum_of(src, dst, edge, from, to, of, column, width, aligned)
#define DR sum_of(dsrc, ddst, dedge, from, to, of, column, width, aligned)
#define ALIGNED is_aligned(width, src, dst, edge, a) && is_aligned(width, dsrc, ddst, dedge, da)

// scores[k, head] = <a[head], act(r)>  in CSC order, and their tangents. A group of 8 lanes
// computes an entry, and lane h % 8 stores head h.
extern "C" __global__ void score(whole entries, whole heads, whole width, const int* sources,
                                 const int* destinations, const whole* edges, ENDS, real* scores,
                                 real* tangents) {
  constexpr int lanes = 8;
  const whole k = thread_number() / lanes;
  const int lane = threadIdx.x % lanes, kind = static_cast<int>(activation);
  const bool here = k < entries, aligned = ALIGNED;
  const whole size = heads * width;
  const whole first_from = here ? (sources[k] - 1) * size : 0;
  const whole first_to = here ? (destinations[k] - 1) * size : 0;
  const whole first_of = here && (edge || dedge) ? (edges[k] - 1) * size : 0;
  for (int head = 0; head < static_cast<int>(heads); ++head) {
    const whole start = head * width;
    const whole from = first_from + start, to = first_to + start, of = first_of + start;
    real sum = 0, dsum = 0;
    for (whole column = lane * VECTOR; here && column < width; column += lanes * VECTOR) {
      const Vector r = R, by = load(a + start, column, width, aligned);
      Vector dr = {}, dby = {};
      if (tangents) {
        dr = DR;
        if (da) dby = load(da + start, column, width, aligned);
      }
#pragma unroll
      for (int c = 0; c < VECTOR; ++c) {
        if (column + c >= width) continue;
        const Activated act = activate(kind, r.at[c], leak);
        sum += by.at[c] * act.value;
        if (!tangents) continue;
        dsum += by.at[c] * act.slope * dr.at[c];
        if (da) dsum += dby.at[c] * act.value;
      }
    }
    sum = lane_sum<lanes>(sum);
    if (tangents) dsum = lane_sum<lanes>(dsum);
    if (!here || lane != head % lanes) continue;
    scores[k * heads + head] = sum;
    if (tangents) tangents[k * heads + head] = dsum;
  }
}

// out[row, head] (+)= the sum over its entries of the gradient by r. `first` is the gradient by the
// score, or, with tangents, `second` is its tangent. Sources, destinations and edges of the entries
// are the given arrays, or the row itself.
extern "C" __global__ void ends_vjp(ROWS, const int* destinations, const whole* edges,
                                    const whole* places, whole heads, ENDS, const real* first,
                                    const real* second, real* partial, whole accumulate,
                                    real* out) {
  const Layout mine(lanes, across, parts);
  if (!segments && mine.unit >= rows) return;
  const Span span =
      segments ? long_span(offsets, rows, entries, mine.unit) : row_span(offsets, mine.unit);
  const bool aligned = ALIGNED;
  const int kind = static_cast<int>(activation);
  const whole column = mine.column;
  Accumulators sums = {};
  if (segments || !span.is_long) {
    for (whole k = span.start + mine.entry; k < span.end; k += mine.step) {
      const whole j = nodes ? nodes[k] - 1 : span.row;
      const whole i = destinations ? destinations[k] - 1 : span.row;
      const whole e = edges ? edges[k] - 1 : span.row, place = places ? places[k] - 1 : k;
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        const whole head = mine.head + slot * mine.across;
        if (head >= heads || column >= width) continue;
        const whole from = (j * heads + head) * width, to = (i * heads + head) * width;
        const whole of = (e * heads + head) * width;
        const Vector r = R, by = load(a + head * width, column, width, aligned);
        const real one = first[place * heads + head];
        if (!second) {
#pragma unroll
          for (int c = 0; c < VECTOR; ++c)
            sums.at[slot].at[c] += one * by.at[c] * activate(kind, r.at[c], leak).slope;
          continue;
        }
        const real other = second[place * heads + head];
        const Vector dr = DR;
        Vector dby = {};
        if (da) dby = load(da + head * width, column, width, aligned);
#pragma unroll
        for (int c = 0; c < VECTOR; ++c) {
          const Activated act = activate(kind, r.at[c], leak);
          real term = by.at[c] * (other * act.slope + one * (act.curvature * dr.at[c]));
          if (da) term += one * dby.at[c] * act.slope;
          sums.at[slot].at[c] += term;
        }
      }
    }
  }
  store(mine, span, segments, heads, width, 1, sums, partial, accumulate, out);
}

// Gradient by a: sums over blocks of `each` entries of  first act(r),  or its tangent. blockIdx.y
// counts columns.
extern "C" __global__ void sum_weights(whole entries, whole each, whole heads, whole width,
                                       const int* sources, const int* destinations,
                                       const whole* edges, ENDS, const real* first,
                                       const real* second, double* partial) {
  SHARED(double, sums);
  const whole c = static_cast<whole>(blockIdx.y) * WARP + threadIdx.x % WARP, size = heads * width;
  const whole line = threadIdx.x / WARP, lines = blockDim.x / WARP;
  const whole start = blockIdx.x * each, end = start + each < entries ? start + each : entries;
  const int kind = static_cast<int>(activation);
  double sum = 0;
  if (c < size) {
    const whole head = c / width;
    for (whole k = start + line; k < end; k += lines) {
      const whole from = (sources[k] - 1) * size + c, to = (destinations[k] - 1) * size + c;
      const whole of = edge || dedge ? (edges[k] - 1) * size + c : 0;
      const real r = src[from] + dst[to] + (edge ? edge[of] : real(0));
      const real one = first[k * heads + head];
      if (!second) {
        sum += one * activate(kind, r, leak).value;
        continue;
      }
      real dr = 0;
      if (dsrc) dr += dsrc[from];
      if (ddst) dr += ddst[to];
      if (dedge) dr += dedge[of];
      const Activated act = activate(kind, r, leak);
      sum += second[k * heads + head] * act.value + one * act.slope * dr;
    }
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (line || c >= size) return;
  for (whole k = 1; k < lines; ++k) sum += sums[k * WARP + threadIdx.x];
  partial[blockIdx.x * size + c] = sum;
}
