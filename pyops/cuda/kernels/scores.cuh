// Attention scores of entries by heads, their activations and their softmax. Arrays by heads are
// [rows, heads].
constexpr int WARP = 32;

//@ scores
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
  __device__ Activated act(real z) const { return activate(activation, z, leak); }
  __device__ real factor(whole e, int head) const { return mask ? mask[e * heads + head] : 1; }
  __device__ bool has_edges() const { return edge || mask; }
};

#define SCORES                                                                                  \
  whole heads, whole activation, real leak, const real *src, const real *dst, const real *edge, \
      const real *mask, const real *top, const real *share
#define GIVEN_SCORES \
  {static_cast<int>(heads), static_cast<int>(activation), leak, src, dst, edge, mask, top, share}
