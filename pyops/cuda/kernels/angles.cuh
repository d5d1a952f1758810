// Edge-to-edge aggregation by angles. A warp visits the pairs (e, f), with f into the source of e,
// in blocks of 32. Each lane computes the angular terms of one pair in shared memory; then each
// lane processes its channels for all pairs of the block.
//
// Entries are numbered in CSC order (incoming edges), and arrays by entry are in that order. The
// prefix t denotes tangents. T[edge, l] = A_l R_l for weights [A; B] and radial parts R.
//! DEGREES 4 8 16 32
constexpr int WARP = 32, CHUNK = 8, COLUMNS = DEGREES > 8 ? 1 : 2;
constexpr int LINE = COLUMNS * WARP;

// Y_l(cosine) and its first two derivatives, for all degrees below DEGREES.
struct Angular {
  real value[DEGREES], slope[DEGREES], bend[DEGREES];
};

template <bool second>
__device__ inline void legendre(real x, int degrees, Angular &y) {
  real p = 1, before = 0, p1 = 0, before1 = 0, p2 = 0, before2 = 0;
#pragma unroll
  for (int l = 0; l < DEGREES; ++l) {
    const real size = l < degrees ? sqrt((2 * l + 1) * real(0.079577471545947667884)) : real(0);
    y.value[l] = size * p;
    y.slope[l] = size * p1;
    if (second) y.bend[l] = size * p2;
    const real a = real(2 * l + 1) / (l + 1), b = real(l) / (l + 1);
    const real next = a * x * p - b * before, next1 = a * (p + x * p1) - b * before1;
    const real next2 = a * (2 * p1 + x * p2) - b * before2;
    before = p, before1 = p1, before2 = p2;
    p = next, p1 = next1, p2 = next2;
  }
}

struct Edges {
  whole exclude;
  const whole *reverse;
  const real *u, *tu;

  // Whether edge e into node i and edge f out of node k form a pair.
  __device__ bool pair(whole e, whole i, whole f, whole k) const {
    if (u[4 * e + 3] == 0 || u[4 * f + 3] == 0) return false;
    return exclude == 1 ? k != i : exclude == 3 ? reverse[e] != f + 1 : true;
  }
  __device__ real cosine(whole e, whole f) const {
    real sum = 0;
    for (int k = 0; k < 3; ++k) sum += u[4 * e + k] * u[4 * f + k];
    return sum;
  }
  __device__ real tangent(whole e, whole f) const {
    real sum = 0;
    for (int k = 0; k < 3; ++k) sum += tu[4 * e + k] * u[4 * f + k] + u[4 * e + k] * tu[4 * f + k];
    return sum;
  }
};

#define GRAPH                                                                          \
  whole entries, whole rows, const whole *offsets, const int *nodes, const whole *ids, \
      const int *owners, whole exclude, const whole *reverse, const real *u, const real *tu
