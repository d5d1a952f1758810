// Lower medians of messages over the entries of graph rows, by column.

#if REAL_IS_DOUBLE
typedef long long bits;
#else
typedef int bits;
#endif
constexpr int TOP_BIT = 8 * sizeof(bits) - 1;
constexpr bits LOW_BITS = static_cast<bits>(~0ull >> (65 - 8 * sizeof(bits)));

// Bits of a number as an integer with the order of numbers; -0 as 0.
__device__ inline bits ordered(real x) {
  union {
    real number;
    bits integer;
  } both = {x + real(0)};
  return both.integer < 0 ? both.integer ^ LOW_BITS : both.integer;
}

// Median of each row and column and its entry, 1-based, the first of equals or of NaN; both 0 for
// an empty row. Found by bisection over the bits of the number. `out` and `found` are optional.
extern "C" __global__ void median_rows(whole rows, const whole* offsets, const int* nodes,
                                       const whole* edges, const whole* weighted,
                                       const real* weight, const feature* table, whole width,
                                       whole accumulate, real* out, whole out_lead, whole out_first,
                                       whole* found) {
  const whole at = thread_number(), row = at / width, column = at % width;
  if (row >= rows) return;
  const Span span = row_span(offsets, row);
  const auto message = [&](whole entry) {
    const whole r = (nodes ? nodes[entry] : edges[entry]) - 1;
    const real factor = weight ? weight[weighted[entry] - 1] : real(1);
    return factor * table[r * width + column];
  };
  bits median = ~LOW_BITS;
  for (int bit = TOP_BIT; bit >= 0; --bit) {
    const bits next = bit == TOP_BIT ? 0 : median | (static_cast<bits>(1) << bit);
    whole below = 0;
    for (whole entry = span.start; entry < span.end; ++entry)
      below += ordered(message(entry)) < next;
    if (below <= (span.end - span.start - 1) / 2) median = next;
  }
  whole first = 0;
  real value = 0;
  for (whole entry = span.end; entry > span.start; --entry) {
    const real m = message(entry - 1);
    if (is_nan(m) || (ordered(m) == median && !is_nan(value))) {
      first = entry;
      value = m;
    }
  }
  if (found) found[row * out_lead + out_first + column] = first;
  if (!out) return;
  real* const place = out + row * out_lead + out_first + column;
  *place = value + (accumulate ? *place : real(0));
}
