// Gradients over pairs for the edges into nodes.
#include "angles.cuh"

// For each entry f along the incoming rows, from `from` to before `to`, over the edges e out of its
// destination, of the gradients of Q_f,l = X_f * B T_f,l
//   gQ_f,l = sum_e Y_l gy_e ,  gu_f = sum_e sum_l Y'_l <gy_e, Q_f,l> u_e
// and with tangents those of both besides. gQ stands apart by entries from `from`, [degree,
// channel]; `met` says which of these are in a pair at all.
template <bool second>
__device__ inline void sum_pairs_back(
    const Edges& edges, whole from, whole to, whole out_rows, const int* nodes, const whole* ids,
    const int* owners, const whole* out_offsets, const int* out_nodes, const whole* out_edges,
    int degrees, whole channels, whole middle, const real* T, const real* tT, const real* X,
    const real* tX, const real* B, const real* tB, const real* gy, real* gQ, real* tgQ, real* gu,
    real* tgu, int* met) {
  constexpr int SETS = second ? 3 : 2, PAIR = SETS * DEGREES + 7;
  SHARED(real, shared);
  const int lane = threadIdx.x % WARP;
  real* const pairs = shared + threadIdx.x / WARP * (WARP * PAIR + WARP);
  real* const kept = pairs + WARP * PAIR;
  const whole place = from + thread_number() / WARP;
  if (place >= to) return;
  const whole f = ids[place] - 1, k_node = nodes[place] - 1, j = owners[place] - 1;
  const whole first = j < out_rows ? out_offsets[j] - 1 : 0;
  const whole last = j < out_rows ? out_offsets[j + 1] - 1 : 0;
  const whole column = static_cast<whole>(blockIdx.y) * LINE + lane;
  real q[COLUMNS][DEGREES] = {}, tq[COLUMNS][DEGREES] = {};
  real sums[COLUMNS][DEGREES] = {}, tsums[COLUMNS][DEGREES] = {}, by_u[3] = {}, by_tu[3] = {};
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) {
    const whole at = column + c * WARP;
    if (!gu || at >= channels) continue;
    const real x = X[f * channels + at], tx = second && tX ? tX[f * channels + at] : real(0);
#pragma unroll
    for (int l = 0; l < DEGREES; ++l) {
      if (l >= degrees) continue;
      real sum = 0, tsum = 0;
      for (whole m = 0; m < middle; ++m) {
        const whole t = (f * degrees + l) * middle + m;
        sum += B[at * middle + m] * T[t];
        if (second && tT) tsum += B[at * middle + m] * tT[t];
        if (second && tB) tsum += tB[at * middle + m] * T[t];
      }
      q[c][l] = x * sum;
      tq[c][l] = second && tX ? x * tsum + tx * sum : x * tsum;
    }
  }
  int pairs_met = 0;
  for (whole start = first; start < last; start += WARP) {
    const whole mine = start + lane;
    real* const here = pairs + lane * PAIR;
    bool counts = false;
    if (mine < last) {
      const whole e = out_edges[mine] - 1;
      counts = edges.pair(e, out_nodes[mine] - 1, f, k_node);
      if (counts) {
        Angular at;
        legendre<second>(edges.cosine(e, f), degrees, at);
#pragma unroll
        for (int l = 0; l < DEGREES; ++l) {
          here[l] = at.value[l];
          here[DEGREES + l] = at.slope[l];
          if (second) here[2 * DEGREES + l] = at.bend[l];
        }
        for (int k = 0; k < 3; ++k) {
          here[SETS * DEGREES + k] = edges.u[4 * e + k];
          here[SETS * DEGREES + 3 + k] = second && edges.tu ? edges.tu[4 * e + k] : real(0);
        }
        here[SETS * DEGREES + 6] = second && edges.tu ? edges.tangent(e, f) : real(0);
      }
    }
    kept[lane] = counts;
    __syncwarp();
    const int count = last - start < WARP ? static_cast<int>(last - start) : WARP;
    for (int k = 0; k < count; ++k) {
      if (kept[k] == 0) continue;
      pairs_met = 1;
      const whole e = out_edges[start + k] - 1;
      const real* const pair = pairs + k * PAIR;
      const real dc = pair[SETS * DEGREES + 6];
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        if (column + c * WARP >= channels) continue;
        const real g = gy[e * channels + column + c * WARP];
        real by = 0, tby = 0;
#pragma unroll
        for (int l = 0; l < DEGREES; ++l) {
          if (l >= degrees) continue;
          sums[c][l] += pair[l] * g;
          if (l == 0) continue;
          if (second && edges.tu) tsums[c][l] += pair[DEGREES + l] * dc * g;
          if (!gu) continue;
          by += pair[DEGREES + l] * q[c][l];
          if (!second) continue;
          tby += pair[DEGREES + l] * tq[c][l];
          if (l > 1 && edges.tu) tby += pair[2 * DEGREES + l] * dc * q[c][l];
        }
        if (!gu) continue;
#pragma unroll
        for (int d = 0; d < 3; ++d) {
          by_u[d] += by * g * pair[SETS * DEGREES + d];
          if (!second) continue;
          by_tu[d] += tby * g * pair[SETS * DEGREES + d];
          if (edges.tu) by_tu[d] += by * g * pair[SETS * DEGREES + 3 + d];
        }
      }
    }
    __syncwarp();
  }
  if (met && lane == 0 && blockIdx.y == 0) met[place - from] = pairs_met;
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
    for (int l = 0; l < DEGREES; ++l) {
      if (l >= degrees || column + c * WARP >= channels || !gQ) continue;
      const whole at = ((place - from) * degrees + l) * channels + column + c * WARP;
      gQ[at] = sums[c][l];
      if (second && tgQ) tgQ[at] = tsums[c][l];
    }
  if (!gu) return;
  const whole slot = (place * gridDim.y + blockIdx.y) * 3;
  for (int d = 0; d < 3; ++d) {
    const real sum = lane_sum<WARP>(by_u[d]), tsum = second ? lane_sum<WARP>(by_tu[d]) : real(0);
    if (lane) continue;
    gu[slot + d] = sum;
    if (second) tgu[slot + d] = tsum;
  }
}

#define BACK                                                                                \
  whole from, whole to, whole out_rows, const whole *out_offsets, const int *out_nodes,     \
      const whole *out_edges, whole degrees, whole channels, whole middle

extern "C" __global__ void pairs_back(GRAPH, BACK, const real* T, const real* X, const real* B,
                                      const real* gy, real* gQ, real* gu, int* met) {
  const Edges edges = {exclude, reverse, u, tu};
  sum_pairs_back<false>(edges, from, to, out_rows, nodes, ids, owners, out_offsets, out_nodes,
                        out_edges, static_cast<int>(degrees), channels, middle, T, 0, X, 0, B, 0, gy,
                        gQ, 0, gu, 0, met);
}

extern "C" __global__ void pairs_back_second(
    GRAPH, BACK, const real* T, const real* tT, const real* X, const real* tX, const real* B,
    const real* tB, const real* gy, real* gQ, real* tgQ, real* gu, real* tgu, int* met) {
  const Edges edges = {exclude, reverse, u, tu};
  sum_pairs_back<true>(edges, from, to, out_rows, nodes, ids, owners, out_offsets, out_nodes,
                       out_edges, static_cast<int>(degrees), channels, middle, T, tT, X, tX, B, tB,
                       gy, gQ, tgQ, gu, tgu, met);
}
