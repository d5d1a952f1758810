// Attention scores of entries by heads, their activations and their softmax. Arrays by heads are
// [rows, heads].
constexpr int WARP = 32;

enum Activation { LEAKY_RELU = 1, IDENTITY, RELU, SIGMOID, TANH, ELU };

__device__ inline real squashed(real x) {
  const real y = x < -80 ? real(-80) : x > 80 ? real(80) : x;
  return 1 / (1 + exp(-y));
}

__device__ inline real exp_below(real x) { return exp(x > 0 ? real(0) : x); }

__device__ inline real act(int kind, real leak, real x) {
  if (kind == LEAKY_RELU) return x > 0 ? x : leak * x;
  switch (kind) {
    case RELU: return x <= 0 ? real(0) : x;
    case SIGMOID: return squashed(x);
    case TANH: return tanh(x);
    case ELU: return x > 0 ? x : exp_below(x) - 1;
    default: return x;
  }
}

__device__ inline real slope(int kind, real leak, real x) {
  if (is_nan(x)) return x;
  if (kind == LEAKY_RELU) return x > 0 ? real(1) : leak;
  switch (kind) {
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
    default: return 1;
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

// Scores of entries: sums of a node score of the source, one of the destination and an edge score.
struct Scores {
  int heads, activation;
  real leak;
  const real *src, *dst, *edge, *mask, *top, *share;

  // Term that all entries of a destination share.
  __device__ real of(whole i, int head) const { return src ? dst[i * heads + head] : real(0); }
  __device__ real raw(real of_destination, int j, whole e, int head) const {
    real z = of_destination;
    if (src) z += src[static_cast<whole>(j) * heads + head];
    if (edge) z += edge[e * heads + head];
    return z;
  }
  __device__ real factor(whole e, int head) const { return mask ? mask[e * heads + head] : 1; }
  __device__ bool has_edges() const { return edge || mask; }
};

#define SCORES                                                                               \
  whole heads, whole activation, real leak, const real *src, const real *dst, const real *edge, \
      const real *mask, const real *top, const real *share
#define GIVEN_SCORES \
  { static_cast<int>(heads), static_cast<int>(activation), leak, src, dst, edge, mask, top, share }
