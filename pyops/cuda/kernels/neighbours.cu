// Sums and extremes over the entries of graph rows, of the table rows that the entries refer to.
// One source, as the kernels share columns and entries.
//! LANES 4 8 16 32

// LANES lanes process a row, COLUMNS columns each at a time; blockIdx.y counts such column blocks.
constexpr int COLUMNS = LANES == 32 ? 4 : 1;

struct Chunk {
  whole unit;  // row or segment
  whole first;  // first column of this lane
  __device__ Chunk()
      : unit(thread_number() / LANES),
        first(static_cast<whole>(blockIdx.y) * (LANES * COLUMNS) + threadIdx.x % LANES) {}
};

struct Entries {
  const int* nodes;  // table row of each entry, 1-based: nodes,
  const whole* edges;  // or else edges, or else the entry itself
  const whole* weighted;  // weight index of each entry, 1-based; optional
  const real* weight;
  __device__ whole row(whole entry) const {
    return nodes ? nodes[entry] - 1 : edges ? edges[entry] - 1 : entry;
  }
  __device__ real factor(whole entry) const { return weight ? weight[weighted[entry] - 1] : 1; }
};

__device__ inline real shared_by(const whole* offsets, whole row) {
  const whole degree = offsets[row + 1] - offsets[row];
  return degree > 1 ? static_cast<real>(degree) : real(1);
}

struct __align__(COLUMNS * sizeof(feature)) Packed {
  feature at[COLUMNS];
};

// Adds the weighted table rows of `count` entries in their order; all are loaded first. If
// `packed`, the columns of a lane are consecutive and one load, otherwise LANES apart.
template <int count, bool packed>
__device__ inline void add_rows(const Entries& of, whole start, whole column, const feature* table,
                                whole table_ld, whole width, const whole* by_table,
                                const real* scales, real (&total)[COLUMNS]) {
  whole row[count];
  real factor[count], x[count][COLUMNS] = {};
#pragma unroll
  for (int n = 0; n < count; ++n) {
    row[n] = of.row(start + n);
    factor[n] = of.factor(start + n);
    if (by_table) factor[n] /= shared_by(by_table, row[n]);
    if (scales) factor[n] *= scales[row[n]];
  }
#pragma unroll
  for (int n = 0; n < count; ++n) {
    const feature* const from = table + row[n] * table_ld + column;
    if (packed) {
      if (column >= width) continue;
      const Packed columns = *reinterpret_cast<const Packed*>(from);
#pragma unroll
      for (int k = 0; k < COLUMNS; ++k) x[n][k] = columns.at[k];
    } else {
#pragma unroll
      for (int k = 0; k < COLUMNS; ++k)
        if (column + k * LANES < width) x[n][k] = from[k * LANES];
    }
  }
#pragma unroll
  for (int n = 0; n < count; ++n) {
#pragma unroll
    for (int k = 0; k < COLUMNS; ++k) total[k] += factor[n] * x[n][k];
  }
}

// Adds the weighted table rows of all entries of a span.
template <bool packed>
__device__ inline void add_span(const Entries& of, const Span& span, whole column,
                                const feature* table, whole table_ld, whole width,
                                const whole* by_table, const real* scales, real (&total)[COLUMNS]) {
  constexpr int many = 32 / sizeof(real);
  whole entry = span.start;
  for (; entry + many <= span.end; entry += many)
    add_rows<many, packed>(of, entry, column, table, table_ld, width, by_table, scales, total);
  for (; entry + 2 <= span.end; entry += 2)
    add_rows<2, packed>(of, entry, column, table, table_ld, width, by_table, scales, total);
  if (entry < span.end)
    add_rows<1, packed>(of, entry, column, table, table_ld, width, by_table, scales, total);
}

// out[row, out_first + c] (+)= sum over the entries of the row of w table[r, table_first + c].
//
// With `by_table`, each term is divided by the degree of its table row in these offsets; with
// `scales`, it is multiplied by that of its table row; with `mean`, the sum is divided by the
// degree of its own row. With `argextremes`, the argmax or argmin of each row and column (leading
// dimension `ld`), only entries that attain the extreme count. Entries are identified by `places`,
// or else by their own numbers. `argextremes` is indexed by the table row
// (`back`) or by the output row.
extern "C" __global__ void sum_rows(whole segments, whole rows, whole entries, const whole* offsets,
                                    const int* nodes, const whole* edges, const whole* weighted,
                                    const real* weight, const whole* by_table, const real* scales,
                                    whole mean, const whole* argextremes, const whole* places,
                                    whole back, whole ld, const feature* table, whole table_ld,
                                    whole table_first, whole width, double* partial,
                                    whole accumulate, real* out, whole out_ld, whole out_first) {
  const Chunk chunk;
  if (!segments && chunk.unit >= rows) return;
  const Span span =
      segments ? long_span(offsets, rows, entries, chunk.unit) : row_span(offsets, chunk.unit);
  const Entries of = {nodes, edges, weighted, weight};
  const whole column_first = back ? table_first : out_first;
  const feature* const from = table + table_first;
  const bool packed = sizeof(feature) == 2 && COLUMNS > 1 && (width | table_ld) % COLUMNS == 0 &&
                      reinterpret_cast<unsigned long long>(from) % sizeof(Packed) == 0;
  const whole first = packed ? chunk.first + threadIdx.x % LANES * (COLUMNS - 1) : chunk.first;
  const int step = packed ? 1 : LANES;
  if (!segments && span.is_long) {
    for (int k = 0; k < COLUMNS; ++k) {
      const whole c = first + k * step;
      if (c >= width) return;
      double total = 0;
      for (whole p = first_segment(span); p <= last_segment(span); p = next_segment(p))
        total += partial[p * width + c];
      if (mean) total /= shared_by(offsets, span.row);
      real* const place = out + span.row * out_ld + out_first + c;
      *place = static_cast<real>(total) + (accumulate ? *place : real(0));
    }
    return;
  }
  real total[COLUMNS] = {};
  if (!argextremes) {
    if (packed) add_span<true>(of, span, first, from, table_ld, width, by_table, scales, total);
    else add_span<false>(of, span, first, from, table_ld, width, by_table, scales, total);
  } else {
    for (whole entry = span.start; entry < span.end; ++entry) {
      const whole row = of.row(entry);
      real factor = of.factor(entry);
      if (by_table) factor /= shared_by(by_table, row);
      if (scales) factor *= scales[row];
      const feature* const values = table + row * table_ld + table_first;
      const whole* const argextreme = argextremes + (back ? row : span.row) * ld + column_first;
      const whole place = places ? places[entry] : entry + 1;
#pragma unroll
      for (int k = 0; k < COLUMNS; ++k) {
        const whole c = first + k * step;
        if (c < width && argextreme[c] == place) total[k] += factor * values[c];
      }
    }
  }
  for (int k = 0; k < COLUMNS; ++k) {
    const whole c = first + k * step;
    if (c >= width) return;
    if (segments) {
      if (span.is_long) partial[chunk.unit * width + c] = total[k];
    } else {
      if (mean) total[k] /= shared_by(offsets, span.row);
      real* const place = out + span.row * out_ld + out_first + c;
      *place = total[k] + (accumulate ? *place : real(0));
    }
  }
}

// Whether a replaces an earlier b in the extreme; the first NaN stays.
__device__ inline bool exceeds(bool most, real a, real b) {
  return (most ? a > b : a < b) || (is_nan(a) && !is_nan(b));
}

// Column-wise extreme of the weighted rows and its entry (argmax or argmin), 1-based, the first of
// equals; both 0 for an empty row. `out` and `argextremes` are optional.
extern "C" __global__ void extreme_rows(whole segments, whole rows, whole entries,
                                        const whole* offsets, const int* nodes, const whole* edges,
                                        const whole* weighted, const real* weight, whole most,
                                        const feature* table, whole width, real* partial,
                                        whole* partial_argextremes, whole accumulate, real* out,
                                        whole out_ld, whole out_first, whole* argextremes) {
  const Chunk chunk;
  if (!segments && chunk.unit >= rows) return;
  const Span span =
      segments ? long_span(offsets, rows, entries, chunk.unit) : row_span(offsets, chunk.unit);
  if (segments && !span.is_long) return;
  const Entries of = {nodes, edges, weighted, weight};
  real best[COLUMNS] = {};
  whole argextreme[COLUMNS] = {};
  if (!segments && span.is_long) {
    for (whole p = first_segment(span); p <= last_segment(span); p = next_segment(p)) {
#pragma unroll
      for (int k = 0; k < COLUMNS; ++k) {
        const whole c = chunk.first + k * LANES;
        if (c < width && (!argextreme[k] || exceeds(most, partial[p * width + c], best[k]))) {
          best[k] = partial[p * width + c];
          argextreme[k] = partial_argextremes[p * width + c];
        }
      }
    }
  } else {
#pragma unroll 4
    for (whole entry = span.start; entry < span.end; ++entry) {
      const feature* const values = table + of.row(entry) * width;
      const real factor = of.factor(entry);
#pragma unroll
      for (int k = 0; k < COLUMNS; ++k) {
        const whole c = chunk.first + k * LANES;
        const real value = c < width ? factor * values[c] : real(0);
        if (entry == span.start || exceeds(most, value, best[k])) {
          best[k] = value;
          argextreme[k] = entry + 1;
        }
      }
    }
  }
  for (int k = 0; k < COLUMNS; ++k) {
    const whole c = chunk.first + k * LANES;
    if (c >= width) return;
    if (segments) {
      partial[chunk.unit * width + c] = best[k];
      partial_argextremes[chunk.unit * width + c] = argextreme[k];
      continue;
    }
    if (argextremes) argextremes[span.row * out_ld + out_first + c] = argextreme[k];
    if (!out) continue;
    real* const place = out + span.row * out_ld + out_first + c;
    *place = best[k] + (accumulate ? *place : real(0));
  }
}

// out[place, out_first + c] (+)= table[row, table_first + c]: gathers one table row per entry. The
// places are those of the entries if none are given.
extern "C" __global__ void take_rows(whole entries, const int* nodes, const whole* edges,
                                     const whole* places, const feature* table, whole table_ld,
                                     whole table_first, whole width, whole accumulate, real* out,
                                     whole out_ld, whole out_first) {
  const Chunk chunk;
  if (chunk.unit >= entries) return;
  const Entries of = {nodes, edges, 0, 0};
  const whole row = of.row(chunk.unit), place = places ? places[chunk.unit] - 1 : chunk.unit;
  for (int k = 0; k < COLUMNS; ++k) {
    const whole c = chunk.first + k * LANES;
    if (c >= width) return;
    real* const at = out + place * out_ld + out_first + c;
    *at = table[row * table_ld + table_first + c] + (accumulate ? *at : real(0));
  }
}

// out[edge] (+)= sum over the entries of the edge, with end node v, of the sum of h over the edges
// of row v, except the reverse of the edge. `into` has the sums over rows. If a sum is not finite
// or has few terms, it is recomputed without the reverse, as subtraction would propagate NaN or
// lose precision.
extern "C" __global__ void pass_on(whole rows, const whole* offsets, const whole* places,
                                   const int* ends, whole from_rows, const whole* from_offsets,
                                   const whole* from_edges, const whole* reverse, const feature* h,
                                   const real* into, whole width, whole accumulate, real* out) {
  constexpr whole few = 4;
  const Chunk chunk;
  if (chunk.unit >= rows) return;
  const Span span = row_span(offsets, chunk.unit);
  const whole image = reverse ? reverse[chunk.unit] - 1 : -1;
  for (int k = 0; k < COLUMNS; ++k) {
    const whole c = chunk.first + k * LANES;
    if (c >= width) return;
    real total = 0;
    for (whole entry = span.start; entry < span.end; ++entry) {
      const whole node = ends[places[entry] - 1] - 1;
      if (node >= from_rows) continue;
      const real all = into[node * width + c];
      const Span row = row_span(from_offsets, node);
      if (image < 0) {
        total += all;
      } else if (row.end - row.start > few && all - all == 0) {
        total += all - h[image * width + c];
      } else {
        bool left_out = false;
        for (whole p = row.start; p < row.end; ++p) {
          const whole edge = from_edges[p] - 1;
          if (left_out || edge != image) total += h[edge * width + c];
          else left_out = true;
        }
      }
    }
    real* const place = out + chunk.unit * width + c;
    *place = total + (accumulate ? *place : real(0));
  }
}

// out[row] (+)= sum over the entries of the row of <table[r], gradient[q]>. `places` are the
// positions of the entries in CSC order; r is their edge or source, q their destination. With
// `mean`, divided by the degree of q; with `scales`, multiplied by those of r and of q. With
// `argextremes`, only columns whose extreme at q is attained by the entry count.
extern "C" __global__ void dot_rows(whole segments, whole rows, whole entries, const whole* offsets,
                                    const whole* places, const int* nodes, const int* owners,
                                    const whole* in_offsets, whole mean, const whole* argextremes,
                                    whole ld, whole first, const feature* table, whole width,
                                    const feature* gradient, const real* scales,
                                    const real* gradient_scales, double* partial, whole accumulate,
                                    real* out) {
  const Chunk chunk;
  const bool outside = !segments && chunk.unit >= rows;
  Span span = {0, 0, 0, false};
  if (!outside)
    span = segments ? long_span(offsets, rows, entries, chunk.unit) : row_span(offsets, chunk.unit);
  const bool joins = !segments && span.is_long;
  double total = 0;
  if (joins) {
    for (whole p = first_segment(span); p <= last_segment(span); p = next_segment(p))
      total += partial[p];
  } else {
    for (whole entry = span.start; entry < span.end; ++entry) {
      const whole place = places[entry], q = owners[place - 1] - 1;
      const whole r = nodes ? nodes[place - 1] - 1 : span.row;
      const whole* const argextreme = argextremes ? argextremes + q * ld + first : 0;
      real product = 0;
      for (whole c = chunk.first; c < width; c += LANES)
        if (!argextreme || argextreme[c] == place)
          product += table[r * width + c] * gradient[q * ld + first + c];
      if (scales) product *= scales[r] * gradient_scales[q];
      total += mean ? product / shared_by(in_offsets, q) : product;
    }
  }
  const double sum = lane_sum<LANES>(total);  // includes lanes of other rows of the warp
  if (!joins) total = sum;
  if (outside || chunk.first) return;
  if (!segments) out[span.row] = static_cast<real>(total + (accumulate ? out[span.row] : real(0)));
  else if (span.is_long) partial[chunk.unit] = total;
}
