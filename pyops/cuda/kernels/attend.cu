// Graph attention as far as it reads features.
#include "scores.cuh"
#include "features.cuh"

// out[row, head] (+)= scale sum over its entries of  factor alpha table[node, head].
template <bool back>
__device__ inline void attend_rows(const Layout& mine, const Span& span, bool pieces,
                                   const Scores& scores, const Gathered& from, whole width,
                                   const int* nodes, const whole* edges, real* partial,
                                   bool accumulate, real* out) {
  const bool aligned = is_aligned(width, from.table);
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
        add(sums.at[slot], scores.factor(edge_id, head) * alpha, x);
      }
    }
  }
  store(mine, span, pieces, scores.heads, width, from.scale, sums, partial, accumulate, out);
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

// out[row, head] (+)= the sum over its entries of up to two terms
//   scale weight (table[node, head] + of_edge[edge, head]),
// of which a table that is not there is 0; weights are along the entries, or at their `places`.
extern "C" __global__ void gather(ROWS, const whole* places, whole heads, const whole* edges,
                                  TERM(0), TERM(1), real* partial, whole accumulate, real* out) {
  const Layout mine(lanes, across, parts);
  if (!pieces && mine.unit >= rows) return;
  const Span span =
      pieces ? long_span(offsets, rows, entries, mine.unit) : row_span(offsets, mine.unit);
  const bool aligned = is_aligned(width, table0, of_edge0, table1, of_edge1);
  Accumulators sums = {};
  if (pieces || !span.is_long) {
#pragma unroll 2
    for (whole k = span.start + mine.entry; k < span.end; k += mine.step) {
      const whole node = nodes[k] - 1, place = places ? places[k] - 1 : k;
      const whole edge = edges ? edges[k] - 1 : 0;
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        const whole head = mine.head + slot * mine.across;
        if (head >= heads || mine.column >= width) continue;
        const whole of = (edge * heads + head) * width;
        add(sums.at[slot], scale0 * weights0[place * heads + head],
            both(table0, node * stride0 + head * by_head0, of_edge0, of, mine.column, width,
                 aligned));
        if (weights1)
          add(sums.at[slot], scale1 * weights1[place * heads + head],
              both(table1, node * stride1 + head * by_head1, of_edge1, of, mine.column, width,
                   aligned));
      }
    }
  }
  store(mine, span, pieces, heads, width, 1, sums, partial, accumulate, out);
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
  const bool aligned = is_aligned(width, table, x);
  Accumulators sums = {};
  Vector own[SLOTS] = {};
#pragma unroll
  for (int slot = 0; slot < SLOTS; ++slot) {
    const whole head = mine.head + slot * mine.across;
    if (head < heads)
      own[slot] = load(x + (span.row * heads + head) * width, mine.column, width, aligned);
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
        real dot = 0;
        if (mine_too) {
          const Vector g =
              load(table + i * stride + head * by_head, mine.column, width, aligned);
          dot = product(g, own[slot]);
          if (out) {
            const real alpha = scores.alpha(scores.raw(span.row, i, edge_id, head), i, head);
            add(sums.at[slot], scores.factor(edge_id, head) * alpha, g);
          }
        }
        dot = mine.over_lanes(dot);
        if (mine_too && threadIdx.x % mine.lanes == 0) dots[k * heads + head] = scale * dot;
      }
    }
  }
  if (out) store(mine, span, pieces, heads, width, scale, sums, partial, accumulate, out);
}

// Of all entries  dots[k, head] = scale <table[i, head], x[j, head] + of_edge[edge, head]>  and, with
// derivatives of the factors, that of it; a group of 8 lanes has a number.
extern "C" __global__ void multiply(whole entries, whole heads, whole width, const int* sources,
                                    const int* destinations, const whole* edges, GATHERED,
                                    const real* dtable, const real* x, whole x_stride,
                                    whole x_by_head, const real* of_edge, const real* dx,
                                    const real* dof_edge, real* dots, real* ddots) {
  constexpr int lanes = 8;
  const whole unit = thread_number() / lanes;
  const int lane = threadIdx.x % lanes;
  const bool here = unit < entries * heads;
  const whole k = here ? unit / heads : 0, head = unit % heads;
  const bool aligned =
      is_aligned(width, table, x, of_edge, dtable) && is_aligned(width, dx, dof_edge);
  real sum = 0, dsum = 0;
  if (here) {
    const whole at = (destinations[k] - 1) * stride + head * by_head;
    const whole from = (sources[k] - 1) * x_stride + head * x_by_head;
    const whole of = edges ? ((edges[k] - 1) * heads + head) * width : 0;
    for (whole c = lane * VECTOR; c < width; c += lanes * VECTOR) {
      const Vector one = load(table + at, c, width, aligned);
      const Vector other = both(x, from, of_edge, of, c, width, aligned);
      sum += product(one, other);
      if (!ddots) continue;
      if (dtable) dsum += product(load(dtable + at, c, width, aligned), other);
      if (dx || dof_edge) dsum += product(one, both(dx, from, dof_edge, of, c, width, aligned));
    }
  }
  sum = lane_sum<lanes>(sum);
  dsum = lane_sum<lanes>(dsum);
  if (!here || lane) return;
  dots[unit] = scale * sum;
  if (ddots) ddots[unit] = scale * dsum;
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
