// Reductions that are determined by statistics a, b, c of the messages into each destination and
// column, and their backward passes. All arithmetic is in float64; a thread processes a row.
//! REDUCE 6 7 8 9 10 11 12

//@ statistics

struct Messages {
  const int* nodes;  // table row of each entry, 1-based: nodes, or else edges
  const whole* edges;
  const whole* weighted;  // weight index of each entry, 1-based
  const real* weight;  // optional, as is its tangent and that of the table
  const feature* table;
  const feature* tangents;
  const real* hweight;
  whole width;
  __device__ whole row(whole entry) const { return (nodes ? nodes[entry] : edges[entry]) - 1; }
  __device__ double factor(whole entry) const {
    return weight ? static_cast<double>(weight[weighted[entry] - 1]) : 1.0;
  }
  __device__ double message(whole entry, whole row, whole column) const {
    return factor(entry) * table[row * width + column];
  }
  __device__ double tangent(whole entry, whole row, whole column) const {
    const double by_table = tangents ? factor(entry) * tangents[row * width + column] : 0.0;
    if (!hweight) return by_table;
    return by_table +
           static_cast<double>(hweight[weighted[entry] - 1]) * table[row * width + column];
  }
};

// Arrays of the statistics [3, rows, width] and of their derivatives [2, rows, width].
__device__ inline Statistics load_statistics(const double* stats, const double* moved, whole size,
                                             whole at) {
  Statistics s = {stats[at], stats[size + at], stats[2 * size + at], 0, 0};
  if (moved) {
    s.da = moved[at];
    s.db = moved[size + at];
  }
  return s;
}

// Statistics of each row and column, 0 without entries, and out (+)= the reduction; both optional.
extern "C" __global__ void find_statistics(whole rows, const whole* offsets, const int* nodes,
                                           const whole* edges, const whole* weighted,
                                           const real* weight, const feature* table, whole width,
                                           real number, double* stats, whole accumulate, real* out,
                                           whole out_lead, whole out_first) {
  const whole at = thread_number(), row = at / width, column = at % width;
  if (row >= rows) return;
  const Messages of = {nodes, edges, weighted, weight, table, 0, 0, width};
  const Span span = row_span(offsets, row);
  const double k = static_cast<double>(span.end - span.start);
  Statistics s = {0, 0, 0, 0, 0};
  for (int pass = 0; pass < PASSES && span.end > span.start; ++pass) {
    for (whole entry = span.start; entry < span.end; ++entry) {
      const double m = of.message(entry, of.row(entry), column);
      if (entry == span.start) begin(s, pass, m, k, number);
      include(s, pass, m, k, number);
    }
    finish(s, pass, k, number);
  }
  if (stats) {
    stats[at] = s.a;
    stats[rows * width + at] = s.b;
    stats[2 * rows * width + at] = s.c;
  }
  if (!out) return;
  real* const place = out + row * out_lead + out_first + column;
  *place = static_cast<real>(reduction(s)) + (accumulate ? *place : real(0));
}

// Derivatives of the statistics along the tangents, and out (+)= that of the reduction; optional.
extern "C" __global__ void find_tangents(whole rows, const whole* offsets, const int* nodes,
                                         const whole* edges, const whole* weighted,
                                         const real* weight, const feature* table,
                                         const feature* tangents, const real* hweight, whole width,
                                         real number, const double* stats, double* moved,
                                         whole accumulate, real* out, whole out_lead,
                                         whole out_first) {
  const whole at = thread_number(), row = at / width, column = at % width;
  if (row >= rows) return;
  const Messages of = {nodes, edges, weighted, weight, table, tangents, hweight, width};
  const Span span = row_span(offsets, row);
  const double k = static_cast<double>(span.end - span.start);
  Statistics s = load_statistics(stats, 0, rows * width, at);
  double total = 0;
  for (whole entry = span.start; entry < span.end; ++entry) {
    const whole r = of.row(entry);
    const double m = of.message(entry, r, column), h = of.tangent(entry, r, column);
    total += h * slope(s, m, k, number);
    add_tangents(s, m, h, k, number);
  }
  moved[at] = s.da;
  moved[rows * width + at] = s.db;
  if (!out) return;
  real* const place = out + row * out_lead + out_first + column;
  *place = static_cast<real>(total) + (accumulate ? *place : real(0));
}

struct Gradients {
  double by_message, along;  // gradient by the message, and its derivative along the tangents
};

__device__ inline Gradients gradients(const Messages& of, whole entry, whole row, whole column,
                                      const whole* in_offsets, whole rows, whole owner, real number,
                                      const double* stats, const double* moved, double gy) {
  const whole at = owner * of.width + column;
  const Statistics s = load_statistics(stats, moved, rows * of.width, at);
  const double k = static_cast<double>(in_offsets[owner + 1] - in_offsets[owner]);
  const double m = of.message(entry, row, column);
  const double along = moved ? curvature(s, m, of.tangent(entry, row, column), k, number) : 0.0;
  return {gy * slope(s, m, k, number), gy * along};
}

// out[r] (+)= sum over the entries of table row r of the gradient by their table row; with `moved`,
// of its derivative along the tangents. `places` are the positions of the entries in CSC order.
extern "C" __global__ void vjp_table(whole rows, const whole* offsets, const whole* places,
                                     const int* owners, whole num_dst, const whole* in_offsets,
                                     const whole* weighted, const real* weight,
                                     const feature* table, const feature* tangents,
                                     const real* hweight, whole width, real number,
                                     const double* stats, const double* moved, const feature* gy,
                                     whole lead, whole first, whole accumulate, real* out) {
  const whole at = thread_number(), row = at / width, column = at % width;
  if (row >= rows) return;
  const Messages of = {0, 0, weighted, weight, table, tangents, hweight, width};
  const Span span = row_span(offsets, row);
  double total = 0;
  for (whole p = span.start; p < span.end; ++p) {
    const whole entry = places[p] - 1, owner = owners[entry] - 1;
    const Gradients g = gradients(of, entry, row, column, in_offsets, num_dst, owner, number, stats,
                                  moved, gy[owner * lead + first + column]);
    total += of.factor(entry) * (moved ? g.along : g.by_message);
    if (moved && hweight) total += hweight[weighted[entry] - 1] * g.by_message;
  }
  out[at] = static_cast<real>(total) + (accumulate ? out[at] : real(0));
}

// out[edge] (+)= sum over the entries of the edge of the gradient by its weight, likewise. A warp
// processes an edge.
extern "C" __global__ void vjp_weights(whole rows, const whole* offsets, const whole* places,
                                       const int* owners, whole num_dst, const whole* in_offsets,
                                       const int* nodes, const whole* edges, const whole* weighted,
                                       const real* weight, const feature* table,
                                       const feature* tangents, const real* hweight, whole width,
                                       real number, const double* stats, const double* moved,
                                       const feature* gy, whole lead, whole first, whole accumulate,
                                       real* out) {
  constexpr int lanes = 32;
  const whole row = thread_number() / lanes, lane = threadIdx.x % lanes;
  const bool outside = row >= rows;
  const Messages of = {nodes, edges, weighted, weight, table, tangents, hweight, width};
  Span span = {0, 0, 0, false};
  if (!outside) span = row_span(offsets, row);
  double total = 0;
  for (whole p = span.start; p < span.end; ++p) {
    const whole entry = places[p] - 1, owner = owners[entry] - 1, r = of.row(entry);
    for (whole column = lane; column < width; column += lanes) {
      const Gradients g = gradients(of, entry, r, column, in_offsets, num_dst, owner, number, stats,
                                    moved, gy[owner * lead + first + column]);
      total += table[r * width + column] * (moved ? g.along : g.by_message);
      if (moved && tangents) total += tangents[r * width + column] * g.by_message;
    }
  }
  total = lane_sum<lanes>(total);
  if (outside || lane) return;
  out[row] = static_cast<real>(total) + (accumulate ? out[row] : real(0));
}
