// Edge-to-edge aggregation by angles. Pairs of edges (e, f), f into the source of e, are met in the
// rows of a graph, 32 at a time: each lane sees to the angle of one, leaves what follows from it in
// shared memory, and then all lanes take a channel each.
//
// Entries are numbered along the incoming rows, and things of entries stand in that order. t is for
// tangents. T[edge, l] = A_l R_l of the weights [A; B] and the radial parts R.
//! DEGREES 4 8 16 32
constexpr int WARP = 32, CHUNK = 8, COLUMNS = DEGREES > 8 ? 1 : 2;
constexpr int LINE = COLUMNS * WARP;

// u and |v| of each edge, and their tangents; 0 for a zero vector.
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

// What comes of gradients g by u for those by v, (+)= (g - u <u, g>) / |v|, or, with tangents, the
// tangent of that.
extern "C" __global__ void by_vectors(whole edges, const real* u, const real* tu, const real* g,
                                      const real* tg, whole accumulate, real* out) {
  const whole e = thread_number();
  if (e >= edges) return;
  const real size = u[4 * e + 3];
  real along = 0, talong = 0;
  bool none = true;  // where nothing comes back, not even NaN of u does
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

// Y_l and its first two derivatives by the cosine, of all degrees below DEGREES.
struct Angular {
  real value[DEGREES], slope[DEGREES], bend[DEGREES];
};

template <bool second>
__device__ inline void legendre(real x, int degrees, Angular& y) {
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
  const whole* reverse;
  const real *u, *tu;

  // e to node i and f from node k make a pair.
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
    for (int k = 0; k < 3; ++k)
      sum += tu[4 * e + k] * u[4 * f + k] + u[4 * e + k] * tu[4 * f + k];
    return sum;
  }
};

#define GRAPH                                                                            \
  whole entries, whole rows, const whole *offsets, const int *nodes, const whole *ids,     \
      const int *owners, whole exclude, const whole *reverse, const real *u, const real *tu

// For each entry e along the outgoing rows, over the edges f into its source:
//   y_e = sum_f X_f * B G_0 ,  gu_e = sum_f <gy_e, X_f * B G_1> u_f ,  G_n = sum_l Y_l^(n) T_f,l
// or with tangents those of both, gu_e besides. `columns` is all of blockIdx.y: y stands apart by
// entries, the gradients by entries and blockIdx.y.
template <bool second>
__device__ inline void sum_pairs_into(
    const Edges& edges, whole entries, whole rows, const whole* offsets, const int* nodes, const whole* ids,
    const int* owners, const whole* places, int degrees, whole channels, whole middle,
    const real* T, const real* tT, const real* X, const real* tX, const real* B, const real* tB,
    const real* gy, real* y, real* gu, real* tgu) {
  constexpr int SETS = second ? 4 : 2, PAIR = SETS * CHUNK + 6;
  SHARED(real, shared);
  const int lane = threadIdx.x % WARP;
  real* const pairs = shared + threadIdx.x / WARP * (WARP * PAIR + WARP);
  real* const kept = pairs + WARP * PAIR;
  const whole unit = thread_number() / WARP;
  if (unit >= entries) return;
  const whole place = places[unit] - 1, e = ids[place] - 1, i = owners[place] - 1;
  const whole j = nodes[place] - 1;  // perhaps no destination
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
          const real dc = second && edges.tu ? edges.tangent(e, f) : real(0);
          for (int m = 0; m < CHUNK; ++m) {
            real g[4] = {};
            if (m0 + m < middle) {
#pragma unroll
              for (int l = 0; l < DEGREES; ++l) {
                if (l >= degrees) continue;
                const whole q = (f * degrees + l) * middle + m0 + m;
                const real t = T[q], tt = second && tT ? tT[q] : real(0);
                g[0] += at.value[l] * t;
                if (l > 0) g[1] += at.slope[l] * t;
                if (second) {
                  if (tT) g[2] += at.value[l] * tt;
                  if (l > 0 && edges.tu) g[2] += at.slope[l] * dc * t;
                  if (l > 0 && tT) g[3] += at.slope[l] * tt;
                  if (l > 1 && edges.tu) g[3] += at.bend[l] * dc * t;
                }
              }
            }
#pragma unroll
            for (int set = 0; set < SETS; ++set) here[set * CHUNK + m] = g[set];
          }
          for (int k = 0; k < 3; ++k) {
            here[SETS * CHUNK + k] = edges.u[4 * f + k];
            here[SETS * CHUNK + 3 + k] = second && edges.tu ? edges.tu[4 * f + k] : real(0);
          }
        }
      }
      kept[lane] = counts;
      __syncwarp();
      const int count = last - start < WARP ? static_cast<int>(last - start) : WARP;
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
            g[1] += b[c][m] * pair[CHUNK + m];
            if (second) {
              g[2] += b[c][m] * pair[2 * CHUNK + m];
              g[3] += b[c][m] * pair[3 * CHUNK + m];
              if (tB) {
                g[2] += tb[c][m] * pair[m];
                g[3] += tb[c][m] * pair[CHUNK + m];
              }
            }
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

extern "C" __global__ void pairs_into(
    GRAPH, const whole* places, whole degrees, whole channels, whole middle, const real* T,
    const real* X, const real* B, const real* gy, real* y, real* gu) {
  const Edges edges = {exclude, reverse, u, tu};
  sum_pairs_into<false>(edges, entries, rows, offsets, nodes, ids, owners, places,
                        static_cast<int>(degrees), channels, middle, T, 0, X, 0, B, 0, gy, y, gu,
                        0);
}

extern "C" __global__ void pairs_into_second(
    GRAPH, const whole* places, whole degrees, whole channels, whole middle, const real* T,
    const real* tT, const real* X, const real* tX, const real* B, const real* tB, const real* gy,
    real* y, real* gu, real* tgu) {
  const Edges edges = {exclude, reverse, u, tu};
  sum_pairs_into<true>(edges, entries, rows, offsets, nodes, ids, owners, places,
                       static_cast<int>(degrees), channels, middle, T, tT, X, tX, B, tB, gy, y, gu,
                       tgu);
}

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
  whole from, whole to, whole out_rows, const whole *out_offsets, const int *out_nodes, const whole *out_edges, \
      whole degrees, whole channels, whole middle

extern "C" __global__ void pairs_back(GRAPH, BACK, const real* T, const real* X, const real* B,
                                      const real* gy, real* gQ, real* gu, int* met) {
  const Edges edges = {exclude, reverse, u, tu};
  sum_pairs_back<false>(edges, from, to, out_rows, nodes, ids, owners, out_offsets, out_nodes, out_edges,
                        static_cast<int>(degrees), channels, middle, T, 0, X, 0, B, 0, gy, gQ, 0,
                        gu, 0, met);
}

extern "C" __global__ void pairs_back_second(
    GRAPH, BACK, const real* T, const real* tT, const real* X, const real* tX, const real* B,
    const real* tB, const real* gy, real* gQ, real* tgQ, real* gu, real* tgu,
    int* met) {
  const Edges edges = {exclude, reverse, u, tu};
  sum_pairs_back<true>(edges, from, to, out_rows, nodes, ids, owners, out_offsets, out_nodes, out_edges,
                       static_cast<int>(degrees), channels, middle, T, tT, X, tX, B, tB, gy, gQ,
                       tgQ, gu, tgu, met);
}
