// VJPs over pairs, for the incoming edge f of each pair.
#include "angles.cuh"

// For each entry f in CSC order, sums over the edges e out of its destination the gradients of
//   Q_f,l = X_f * K_f,l,  K_f,l = B T_f,l :
//   gQ_f,l = sum_e Y_l gy_e ,  gu_f = sum_e sum_l Y'_l <gy_e, Q_f,l> u_e.
// From these follow the gradient by X, sum_l K_f,l * gQ_f,l, and with gK = X * gQ those by T,
// B^T gK, and by B; or, with tangents, those of all. gu is accumulated. Entries in no pair get 0.
//
// A warp processes `each` entries and sums its gradient by B, [middle, channel], in its own row.
// A row of gT for each entry and block of channels has: tangents of the gradients by T, [degree,
// middle], if there are any; then these gradients if T has tangents; then whether there is a pair.
template <bool second>
__device__ inline void sum_pairs_back(const Edges& edges, whole entries, whole out_rows,
                                      const int* nodes, const whole* ids, const int* owners,
                                      const whole* out_offsets, const int* out_nodes,
                                      const whole* out_edges, whole each, int degrees,
                                      whole channels, whole middle, const real* T, const real* tT,
                                      const real* X, const real* tX, const real* B, const real* tB,
                                      const real* gy, real* gX, real* gT, real* gB, real* gu,
                                      real* tgu) {
  constexpr int SETS = second ? 3 : 2, PAIR = SETS * DEGREES + 7;
  SHARED(real, shared);
  const int lane = threadIdx.x % WARP;
  real* const pairs = shared + threadIdx.x / WARP * (WARP * PAIR + WARP);
  real* const kept = pairs + WARP * PAIR;
  const whole warp = thread_number() / WARP, begin = warp * each;
  const whole end = begin + each < entries ? begin + each : entries;
  if (begin >= end) return;
  const whole column = static_cast<whole>(blockIdx.y) * LINE + lane;
  const bool turns = second && edges.tu, moves = turns || (second && tX);
  const whole numbers = degrees * middle, width = (second && tT ? 2 : 1) * numbers + 1;
  for (whole place = begin; place < end; ++place) {
    const whole f = ids[place] - 1, k_node = nodes[place] - 1, j = owners[place] - 1;
    const whole first = j < out_rows ? out_offsets[j] - 1 : 0;
    const whole last = j < out_rows ? out_offsets[j + 1] - 1 : 0;
    const whole slot = place * gridDim.y + blockIdx.y;
    real x[COLUMNS] = {}, tx[COLUMNS] = {}, by_u[3] = {}, by_tu[3] = {};
    real K[COLUMNS][DEGREES] = {}, tK[COLUMNS][DEGREES] = {};
    real sums[COLUMNS][DEGREES] = {}, tsums[COLUMNS][DEGREES] = {};
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const whole at = column + c * WARP;
      if (at >= channels) continue;
      x[c] = X[f * channels + at];
      if (second && tX) tx[c] = tX[f * channels + at];
      if (!gu && !gX) continue;
#pragma unroll 1
      for (whole m = 0; m < middle; ++m) {
        const real b = B[at * middle + m], tb = second && tB ? tB[at * middle + m] : real(0);
#pragma unroll
        for (int l = 0; l < DEGREES; ++l) {
          if (l >= degrees) continue;
          const whole t = f * numbers + l * middle + m;
          K[c][l] += b * T[t];
          if (second && tT) tK[c][l] += b * tT[t];
          if (second && tB) tK[c][l] += tb * T[t];
        }
      }
    }
    bool met = false;
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
            here[SETS * DEGREES + 3 + k] = turns ? edges.tu[4 * e + k] : real(0);
          }
          here[SETS * DEGREES + 6] = turns ? edges.tangent(e, f) : real(0);
        }
      }
      kept[lane] = counts;
      __syncwarp();
      const int count = last - start < WARP ? static_cast<int>(last - start) : WARP;
      for (int k = 0; k < count; ++k) {
        if (kept[k] == 0) continue;
        met = true;
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
            if (turns) tsums[c][l] += pair[DEGREES + l] * dc * g;
            if (!gu) continue;
            by += pair[DEGREES + l] * K[c][l];
            if (!second) continue;
            tby += pair[DEGREES + l] * tK[c][l];
            if (l > 1 && turns) tby += pair[2 * DEGREES + l] * dc * K[c][l];
          }
          if (!gu) continue;
          tby = second && tX ? x[c] * tby + tx[c] * by : x[c] * tby;
          by *= x[c];
#pragma unroll
          for (int d = 0; d < 3; ++d) {
            by_u[d] += by * g * pair[SETS * DEGREES + d];
            if (!second) continue;
            by_tu[d] += tby * g * pair[SETS * DEGREES + d];
            if (turns) by_tu[d] += by * g * pair[SETS * DEGREES + 3 + d];
          }
        }
      }
      __syncwarp();
    }
    if (gu)
      for (int d = 0; d < 3; ++d) {
        const real sum = lane_sum<WARP>(by_u[d]);
        const real tsum = second ? lane_sum<WARP>(by_tu[d]) : real(0);
        if (lane) continue;
        gu[slot * 3 + d] += sum;
        if (second) tgu[slot * 3 + d] += tsum;
      }
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      real by = 0;
#pragma unroll
      for (int l = 0; l < DEGREES; ++l) {
        const real g = sums[c][l], tg = tsums[c][l];
        if (!second) by += K[c][l] * g;
        if (second && tT) by += tK[c][l] * g;
        if (turns) by += K[c][l] * tg;
        sums[c][l] = x[c] * g;
        tsums[c][l] = turns ? x[c] * tg : real(0);
        if (second && tX) tsums[c][l] += tx[c] * g;
      }
      if (gX && column + c * WARP < channels)
        gX[place * channels + column + c * WARP] = met ? by : real(0);
    }
    if (!gT) continue;
#pragma unroll 1
    for (whole m = 0; m < middle; ++m) {
      real b[COLUMNS] = {}, tb[COLUMNS] = {}, by_b[COLUMNS] = {}, own = 0, town = 0;
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        if (column + c * WARP >= channels) continue;
        b[c] = B[(column + c * WARP) * middle + m];
        if (second && tB) tb[c] = tB[(column + c * WARP) * middle + m];
      }
#pragma unroll
      for (int l = 0; l < DEGREES; ++l) {
        if (l >= degrees) continue;
        const whole t = f * numbers + l * middle + m;
        real by = 0, tby = 0;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
          by += sums[c][l] * b[c];
          if (moves) tby += tsums[c][l] * b[c];
          if (second && tB) tby += sums[c][l] * tb[c];
          if (!gB) continue;
          if (!second) by_b[c] += sums[c][l] * T[t];
          if (moves) by_b[c] += tsums[c][l] * T[t];
          if (second && tT) by_b[c] += sums[c][l] * tT[t];
        }
        if (!second || tT) by = lane_sum<WARP>(by);
        if (second) tby = lane_sum<WARP>(tby);
        if (lane == l) own = by, town = tby;
      }
      if (lane < degrees) {
        real* const out = gT + slot * width + lane * middle + m;
        out[0] = !met ? real(0) : second ? town : own;
        if (second && tT) out[numbers] = met ? own : real(0);
      }
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        if (!gB || column + c * WARP >= channels) continue;
        real* const out = gB + (warp * middle + m) * channels + column + c * WARP;
        const real before = place > begin ? *out : real(0);
        *out = met ? before + by_b[c] : before;
      }
    }
    if (lane == 0) gT[(slot + 1) * width - 1] = met;
  }
}

#define BACK                                                                              \
  whole out_rows, const whole *out_offsets, const int *out_nodes, const whole *out_edges, \
      whole each, whole degrees, whole channels, whole middle

extern "C" __global__ void pairs_vjp(GRAPH, BACK, const real* T, const real* X, const real* B,
                                     const real* gy, real* gX, real* gT, real* gB, real* gu) {
  const Edges edges = {exclude, reverse, u, tu};
  sum_pairs_back<false>(edges, entries, out_rows, nodes, ids, owners, out_offsets, out_nodes,
                        out_edges, each, static_cast<int>(degrees), channels, middle, T, 0, X, 0, B,
                        0, gy, gX, gT, gB, gu, 0);
}

extern "C" __global__ void pairs_vjp_second(GRAPH, BACK, const real* T, const real* tT,
                                            const real* X, const real* tX, const real* B,
                                            const real* tB, const real* gy, real* gX, real* gT,
                                            real* gB, real* gu, real* tgu) {
  const Edges edges = {exclude, reverse, u, tu};
  sum_pairs_back<true>(edges, entries, out_rows, nodes, ids, owners, out_offsets, out_nodes,
                       out_edges, each, static_cast<int>(degrees), channels, middle, T, tT, X, tX,
                       B, tB, gy, gX, gT, gB, gu, tgu);
}
