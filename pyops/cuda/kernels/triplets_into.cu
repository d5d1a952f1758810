// Sums over pairs, for the outgoing edge e of each pair, and the directions of edges.
#include "angles.cuh"

// Computes u and |v| of each edge, and their tangents; 0 for a zero vector.
extern "C" __global__ void directions(whole edges, const real* vectors, const real* tangents,
                                      real* u, real* tu) {
  const whole e = thread_number();
  if (e >= edges) return;
  real v[3], t[3] = {}, size = 0, squares = 0;
  for (int k = 0; k < 3; ++k) {
    v[k] = vectors[3 * e + k];
    if (tangents) t[k] = tangents[3 * e + k];
    size = largest(size, v[k] < 0 ? -v[k] : v[k]);
  }
  if (size > 0 || is_nan(size)) {
    for (int k = 0; k < 3; ++k) squares += v[k] / size * (v[k] / size);
    size *= sqrt(squares);
  }
  real along = 0;
  for (int k = 0; k < 3; ++k) {
    u[4 * e + k] = v[k] = size == 0 ? real(0) : v[k] / size;
    along += v[k] * t[k];
  }
  u[4 * e + 3] = size;
  if (!tangents) return;
  for (int k = 0; k < 3; ++k) tu[4 * e + k] = size == 0 ? real(0) : (t[k] - v[k] * along) / size;
  tu[4 * e + 3] = along;
}

// Gradient by v from the gradient g by u:  out (+)= (g - u <u, g>) / |v|,  or, with tangents, the
// tangent of that.
extern "C" __global__ void by_vectors(whole edges, const real* u, const real* tu, const real* g,
                                      const real* tg, whole accumulate, real* out) {
  const whole e = thread_number();
  if (e >= edges) return;
  const real size = u[4 * e + 3];
  real along = 0, talong = 0;
  bool none = true;  // a zero cotangent must not propagate NaN of u
  for (int k = 0; k < 3; ++k) {
    none = none && g[3 * e + k] == 0 && (!tg || tg[3 * e + k] == 0);
    along += u[4 * e + k] * g[3 * e + k];
    if (tg) talong += u[4 * e + k] * tg[3 * e + k];
    if (tu) talong += tu[4 * e + k] * g[3 * e + k];
  }
  for (int k = 0; k < 3; ++k) {
    const real across = g[3 * e + k] - u[4 * e + k] * along;
    real value = across;
    if (tg) {
      value = tg[3 * e + k] - u[4 * e + k] * talong;
      if (tu) value -= tu[4 * e + k] * along + across / size * tu[4 * e + 3];
    }
    value = size == 0 || none ? real(0) : value / size;
    out[3 * e + k] = value + (accumulate ? out[3 * e + k] : real(0));
  }
}

// For each entry e in CSR order, over the edges f into its source:
//   y_e = sum_f X_f * B G_0 ,  gu_e = sum_f <gy_e, X_f * B G_1> u_f ,  G_n = sum_l Y_l^(n) T_f,l
// or, with tangents, those of both, in addition to gu_e. Gradients by u are stored by entry and by
// blockIdx.y, the block of channels.
//
// Shared memory of a pair: G_n, their tangents, u_f and its tangent, Y_l^(n), the tangent of the
// cosine.
template <bool second>
__device__ inline void sum_pairs_into(const Edges& edges, whole entries, whole rows,
                                      const whole* offsets, const int* nodes, const whole* ids,
                                      const int* owners, const whole* places, int degrees,
                                      whole channels, whole middle, const real* T, const real* tT,
                                      const real* X, const real* tX, const real* B, const real* tB,
                                      const real* gy, real* y, real* gu, real* tgu) {
  constexpr int SETS = second ? 4 : 2, ORDERS = second ? 3 : 2;
  constexpr int ANGLES = SETS * CHUNK + 6, PAIR = (ANGLES + ORDERS * DEGREES + 1) | 1;
  SHARED(real, shared);
  const int lane = threadIdx.x % WARP;
  real* const pairs = shared + threadIdx.x / WARP * (WARP * PAIR + WARP);
  real* const kept = pairs + WARP * PAIR;
  const whole unit = thread_number() / WARP;
  if (unit >= entries) return;
  const whole place = places[unit] - 1, e = ids[place] - 1, i = owners[place] - 1;
  const whole j = nodes[place] - 1;  // may be no destination
  const whole first = j < rows ? offsets[j] - 1 : 0, last = j < rows ? offsets[j + 1] - 1 : 0;
  const whole column = static_cast<whole>(blockIdx.y) * LINE + lane;
  real total[COLUMNS] = {}, by_u[3] = {}, by_tu[3] = {}, own[COLUMNS] = {};
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c)
    if (gu && column + c * WARP < channels) own[c] = gy[e * channels + column + c * WARP];
  for (whole m0 = 0; m0 < middle; m0 += CHUNK) {
    real b[COLUMNS][CHUNK] = {}, tb[COLUMNS][CHUNK] = {};
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
      for (int m = 0; m < CHUNK; ++m) {
        if (column + c * WARP >= channels || m0 + m >= middle) continue;
        b[c][m] = B[(column + c * WARP) * middle + m0 + m];
        if (second && tB) tb[c][m] = tB[(column + c * WARP) * middle + m0 + m];
      }
    for (whole start = first; start < last; start += WARP) {
      const whole mine = start + lane;
      real* const here = pairs + lane * PAIR;
      bool counts = false;
      if (mine < last) {
        const whole f = ids[mine] - 1;
        counts = edges.pair(e, i, f, nodes[mine] - 1);
        if (counts) {
          Angular at;
          legendre<second>(edges.cosine(e, f), degrees, at);
#pragma unroll
          for (int l = 0; l < DEGREES; ++l) {
            here[ANGLES + l] = at.value[l];
            here[ANGLES + DEGREES + l] = at.slope[l];
            if (second) here[ANGLES + 2 * DEGREES + l] = at.bend[l];
          }
          here[PAIR - 1] = second && edges.tu ? edges.tangent(e, f) : real(0);
          for (int k = 0; k < 3; ++k) {
            here[SETS * CHUNK + k] = edges.u[4 * f + k];
            here[SETS * CHUNK + 3 + k] = second && edges.tu ? edges.tu[4 * f + k] : real(0);
          }
        }
      }
      kept[lane] = counts;
      __syncwarp();
      const int count = last - start < WARP ? static_cast<int>(last - start) : WARP;
      for (int n = lane; n < count * CHUNK; n += WARP) {  // neighbouring lanes read neighbours of T
        const int k = n / CHUNK, m = n % CHUNK;
        if (kept[k] == 0) continue;
        real* const pair = pairs + k * PAIR;
        const real dc = pair[PAIR - 1];
        real g[4] = {};
        if (m0 + m < middle) {
          const whole from = (ids[start + k] - 1) * degrees * middle + m0 + m;
#pragma unroll
          for (int l = 0; l < DEGREES; ++l) {
            if (l >= degrees) continue;
            const real t = T[from + l * middle],
                       tt = second && tT ? tT[from + l * middle] : real(0);
            const real value = pair[ANGLES + l], slope = pair[ANGLES + DEGREES + l];
            g[0] += value * t;
            if (l > 0) g[1] += slope * t;
            if (!second) continue;
            if (tT) g[2] += value * tt;
            if (l > 0 && edges.tu) g[2] += slope * dc * t;
            if (l > 0 && tT) g[3] += slope * tt;
            if (l > 1 && edges.tu) g[3] += pair[ANGLES + 2 * DEGREES + l] * dc * t;
          }
        }
#pragma unroll
        for (int set = 0; set < SETS; ++set) pair[set * CHUNK + m] = g[set];
      }
      __syncwarp();
      for (int k = 0; k < count; ++k) {
        if (kept[k] == 0) continue;
        const whole f = ids[start + k] - 1;
        const real* const pair = pairs + k * PAIR;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
          if (column + c * WARP >= channels) continue;
          const real x = X[f * channels + column + c * WARP];
          const real tx = second && tX ? tX[f * channels + column + c * WARP] : real(0);
          real g[4] = {};
#pragma unroll
          for (int m = 0; m < CHUNK; ++m) {
            g[0] += b[c][m] * pair[m];
            if (second) g[2] += b[c][m] * pair[2 * CHUNK + m];
            if (second && tB) g[2] += tb[c][m] * pair[m];
            if (!gu) continue;
            g[1] += b[c][m] * pair[CHUNK + m];
            if (second) g[3] += b[c][m] * pair[3 * CHUNK + m];
            if (second && tB) g[3] += tb[c][m] * pair[CHUNK + m];
          }
          if (y) {
            total[c] += second ? x * g[2] : x * g[0];
            if (second && tX) total[c] += tx * g[0];
          }
          if (!gu) continue;
          const real by = own[c] * x * g[1];
          real tby = own[c] * x * g[3];
          if (second && tX) tby += own[c] * tx * g[1];
#pragma unroll
          for (int d = 0; d < 3; ++d) {
            by_u[d] += by * pair[SETS * CHUNK + d];
            if (!second) continue;
            by_tu[d] += tby * pair[SETS * CHUNK + d];
            if (edges.tu) by_tu[d] += by * pair[SETS * CHUNK + 3 + d];
          }
        }
      }
      __syncwarp();
    }
  }
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c)
    if (y && column + c * WARP < channels) y[place * channels + column + c * WARP] = total[c];
  if (!gu) return;
  const whole slot = (place * gridDim.y + blockIdx.y) * 3;
  for (int d = 0; d < 3; ++d) {
    const real sum = lane_sum<WARP>(by_u[d]), tsum = second ? lane_sum<WARP>(by_tu[d]) : real(0);
    if (lane) continue;
    gu[slot + d] = sum;
    if (second) tgu[slot + d] = tsum;
  }
}

extern "C" __global__ void pairs_into(GRAPH, const whole* places, whole degrees, whole channels,
                                      whole middle, const real* T, const real* X, const real* B,
                                      const real* gy, real* y, real* gu) {
  const Edges edges = {exclude, reverse, u, tu};
  sum_pairs_into<false>(edges, entries, rows, offsets, nodes, ids, owners, places,
                        static_cast<int>(degrees), channels, middle, T, 0, X, 0, B, 0, gy, y, gu,
                        0);
}

extern "C" __global__ void pairs_into_second(GRAPH, const whole* places, whole degrees,
                                             whole channels, whole middle, const real* T,
                                             const real* tT, const real* X, const real* tX,
                                             const real* B, const real* tB, const real* gy, real* y,
                                             real* gu, real* tgu) {
  const Edges edges = {exclude, reverse, u, tu};
  sum_pairs_into<true>(edges, entries, rows, offsets, nodes, ids, owners, places,
                       static_cast<int>(degrees), channels, middle, T, tT, X, tX, B, tB, gy, y, gu,
                       tgu);
}
