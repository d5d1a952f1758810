// Graph attention: the kernels that read features.
constexpr int WARP = 32;
#include "features.cuh"

// Column pointers of a lane into table rows, by slot. A lane without columns reads those of the
// first lane and does not store them, so that no load is conditional.
template <bool aligned>
struct Places {
  const feature* table[SLOTS];
  int stride, head[SLOTS];
  whole width;  // columns from here to the end of the row

  __device__ Places(const Layout& mine, const Gathered& from, int heads, whole width_)
      : stride(static_cast<int>(from.stride)) {
    const whole column = mine.column < width_ ? mine.column : 0;
    width = width_ - column;
#pragma unroll
    for (int slot = 0; slot < SLOTS; ++slot) {
      head[slot] = mine.has(slot, heads, width_) ? static_cast<int>(mine.head_of(slot)) : 0;
      table[slot] = from.table + head[slot] * from.by_head + column;
    }
  }
  __device__ Vector at(int slot, int node) const {
    return load(table[slot] + static_cast<whole>(node) * stride, 0, width, aligned);
  }
};

// Adds weights times feature rows, `count` entries per lane at a time; `full` if all of them exist.
// If `has_dots`, also stores the products of the feature rows with the row `own`.
template <int count, bool full, bool aligned, bool has_dots>
__device__ inline void add_rows(const Layout& mine, const Places<aligned>& from, whole first,
                                whole end, int heads, whole width, const int* nodes,
                                const whole* places, const real* weights, const Accumulators& own,
                                real* dots, Accumulators& sums) {
  bool here[count];
  int node[count];
  whole place[count];
#pragma unroll
  for (int n = 0; n < count; ++n) {
    place[n] = first + n * mine.step;
    here[n] = full || place[n] < end;
    node[n] = here[n] ? nodes[place[n]] - 1 : 0;
  }
  if (places) {
#pragma unroll
    for (int n = 0; n < count; ++n) place[n] = here[n] ? places[place[n]] - 1 : 0;
  }
  Vector x[count][SLOTS] = {};
  real weight[count][SLOTS] = {};
#pragma unroll
  for (int n = 0; n < count; ++n) {
#pragma unroll
    for (int slot = 0; slot < SLOTS; ++slot) {
      if (!here[n]) continue;
      x[n][slot] = from.at(slot, node[n]);
      weight[n][slot] = weights[place[n] * heads + from.head[slot]];
    }
  }
  real products[count * SLOTS];
#pragma unroll
  for (int n = 0; n < count; ++n) {
#pragma unroll
    for (int slot = 0; slot < SLOTS; ++slot) {
      add(sums.at[slot], weight[n][slot], x[n][slot]);
      if (has_dots) products[n * SLOTS + slot] = product(x[n][slot], own.at[slot]);
    }
  }
  if (!has_dots) return;
  mine.over_lanes(products);
#pragma unroll
  for (int slot = 0; slot < SLOTS; ++slot) {
    if (mine.column || !mine.has(slot, heads, width)) continue;
#pragma unroll
    for (int n = 0; n < count; ++n)
      if (here[n])
        dots[(first + n * mine.step) * heads + from.head[slot]] = products[n * SLOTS + slot];
  }
}

template <bool aligned, bool has_dots>
__device__ inline void add_row(const Layout& mine, const Span& span, const Gathered& gathered,
                               int heads, whole width, const int* nodes, const whole* places,
                               const real* weights, const feature* x, real* dots,
                               Accumulators& sums) {
  constexpr int few = 16 / sizeof(real);
  const Places<aligned> from(mine, gathered, heads, width);
  Accumulators own = {};
#pragma unroll
  for (int slot = 0; slot < SLOTS; ++slot)
    if (has_dots && mine.has(slot, heads, width))
      add(own.at[slot], gathered.scale,
          load(x + (span.row * heads + from.head[slot]) * width, mine.column, width, aligned));
  whole start = span.start;
  for (; start + few * mine.step <= span.end; start += few * mine.step)
    add_rows<few, true, aligned, has_dots>(mine, from, start + mine.entry, span.end, heads, width,
                                           nodes, places, weights, own, dots, sums);
  if (start < span.end)
    add_rows<few, false, aligned, has_dots>(mine, from, start + mine.entry, span.end, heads, width,
                                            nodes, places, weights, own, dots, sums);
}

#define TERM(n)                                                                       \
  const real *weights##n, const feature *table##n, whole stride##n, whole by_head##n, \
      real scale##n, const feature *of_edge##n

// out[row, head] (+)= the sum over its entries of up to two terms
//   scale weight (table[node, head] + of_edge[edge, head]).
// An absent table is 0. Weights are in the order of the entries, or at their `places`.
extern "C" __global__ void gather(ROWS, const whole* places, whole heads, const whole* edges,
                                  TERM(0), TERM(1), real* partial, whole accumulate, real* out) {
  const Layout mine(lanes, across, parts);
  if (!segments && mine.unit >= rows) return;
  const Span span =
      segments ? long_span(offsets, rows, entries, mine.unit) : row_span(offsets, mine.unit);
  const bool aligned = is_aligned(width, table0, of_edge0, table1, of_edge1);
  Accumulators sums = {};
  if (segments || !span.is_long) {
    if (aligned && table0 && !of_edge0 && (!weights1 || (table1 && !of_edge1))) {
      const int count = static_cast<int>(heads);
      add_row<true, false>(mine, span, {table0, stride0, by_head0, scale0}, count, width, nodes,
                           places, weights0, 0, 0, sums);
      Accumulators first = sums;
      sums = {};
      if (weights1)
        add_row<true, false>(mine, span, {table1, stride1, by_head1, scale1}, count, width, nodes,
                             places, weights1, 0, 0, sums);
#pragma unroll
      for (int slot = 0; slot < SLOTS; ++slot) {
        Vector both = {};
        add(both, scale0, first.at[slot]);
        if (weights1) add(both, scale1, sums.at[slot]);
        sums.at[slot] = both;
      }
    } else {
#pragma unroll 2
      for (whole k = span.start + mine.entry; k < span.end; k += mine.step) {
        const whole node = nodes[k] - 1, place = places ? places[k] - 1 : k;
        const whole edge = edges ? edges[k] - 1 : 0;
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) {
          if (!mine.has(slot, heads, width)) continue;
          const whole head = mine.head_of(slot), of = (edge * heads + head) * width;
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
  }
  store(mine, span, segments, heads, width, 1, sums, partial, accumulate, out);
}

// Fused pass over the outgoing edges, with one gather of the destinations' gradients: computes
//   dots[k, head] = scale <table[i, head], x[j, head]>
// and, if `out` is given, their weighted sums as in `gather`. A head is not split into parts.
extern "C" __global__ void attend_vjp(ROWS, const whole* places, whole heads, const real* weights,
                                      GATHERED, const feature* x, real* dots, real* partial,
                                      whole accumulate, real* out) {
  const Layout mine(lanes, across, 1);
  if (!segments && mine.unit >= rows) return;
  const Span span =
      segments ? long_span(offsets, rows, entries, mine.unit) : row_span(offsets, mine.unit);
  const Gathered from = {table, stride, by_head, scale};
  Accumulators sums = {};
  if (segments || !span.is_long) {
    if (is_aligned(width, table, x))
      add_row<true, true>(mine, span, from, static_cast<int>(heads), width, nodes, places, weights,
                          x, dots, sums);
    else
      add_row<false, true>(mine, span, from, static_cast<int>(heads), width, nodes, places, weights,
                           x, dots, sums);
  }
  if (out) store(mine, span, segments, heads, width, scale, sums, partial, accumulate, out);
}

// dots[k, head] = scale <table[i, head], x[j, head] + of_edge[edge, head]>  for all entries, and
// its derivative if those of the factors are given. A group of 8 lanes computes an entry, and lane
// h % 8 stores head h.
extern "C" __global__ void multiply(
    whole entries, whole heads, whole width, const int* __restrict__ sources,
    const int* __restrict__ destinations, const whole* __restrict__ edges,
    const feature* __restrict__ table, whole stride, whole by_head, real scale,
    const feature* __restrict__ dtable, const feature* __restrict__ x, whole x_stride,
    whole x_by_head, const feature* __restrict__ of_edge, const feature* __restrict__ dx,
    const feature* __restrict__ dof_edge, real* dots, real* ddots) {
  constexpr int lanes = 8;
  const whole k = thread_number() / lanes;
  const int lane = threadIdx.x % lanes, count = static_cast<int>(heads);
  const bool here = k < entries;
  const bool aligned =
      is_aligned(width, table, x, of_edge, dtable) && is_aligned(width, dx, dof_edge);
  const whole at = here ? (destinations[k] - 1) * stride : 0;
  const whole from = here ? (sources[k] - 1) * x_stride : 0;
  const whole of = here && edges ? (edges[k] - 1) * heads * width : 0;
  const auto finish = [&](int head, real sum, real dsum) {
    sum = lane_sum<lanes>(sum);
    if (ddots) dsum = lane_sum<lanes>(dsum);
    if (!here || lane != head % lanes) return;
    dots[k * heads + head] = scale * sum;
    if (ddots) ddots[k * heads + head] = scale * dsum;
  };
  if (aligned && width <= lanes * VECTOR && x && !of_edge && !ddots) {  // loads of heads overlap
    const whole c = lane * VECTOR < width ? lane * VECTOR : 0;
#pragma unroll 4
    for (int head = 0; head < count; ++head) {
      const Vector one = load(table + at + head * by_head, c, width, true);
      const Vector other = load(x + from + head * x_by_head, c, width, true);
      finish(head, lane * VECTOR < width ? product(one, other) : real(0), 0);
    }
    return;
  }
  for (int head = 0; head < count; ++head) {
    real sum = 0, dsum = 0;
    const whole own = at + head * by_head, there = from + head * x_by_head;
    const whole of_head = of + head * width;
    for (whole c = lane * VECTOR; here && c < width; c += lanes * VECTOR) {
      const Vector one = load(table + own, c, width, aligned);
      const Vector other = both(x, there, of_edge, of_head, c, width, aligned);
      sum += product(one, other);
      if (!ddots) continue;
      if (dtable) dsum += product(load(dtable + own, c, width, aligned), other);
      if (dx || dof_edge)
        dsum += product(one, both(dx, there, dof_edge, of_head, c, width, aligned));
    }
    finish(head, sum, dsum);
  }
}

// out (+)= the mean over the heads.
extern "C" __global__ void average(whole rows, whole heads, whole width, const real* values,
                                   whole accumulate, real* out) {
  const whole place = thread_number();
  if (place >= rows * width) return;
  const whole row = quotient(place, width), c = place - row * width;
  real sum = 0;
  for (whole head = 0; head < heads; ++head) sum += values[(row * heads + head) * width + c];
  out[place] = sum / heads + (accumulate ? out[place] : real(0));
}
