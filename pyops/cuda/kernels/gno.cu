// Hidden layer of a kernel network, and its outer products with features, summed over row segments.
//
// Parameters begin with U | b, both [.., hidden]: `pre` is b + sum over k of U[k] x[k]. A segment
// of a row is given by row, start and end, 0-based. One source: the kernels share `Layer`.
//! WIDTH 16 64
//@ activations
constexpr int UNITS = 64;  // hidden units per block
constexpr int SHORT = 16;  // entries per step of `outer`
constexpr int LONG = 32;  // entries per step of `layer_vjp`
constexpr int STEP = 16;  // features per step of `layer_vjp`
constexpr int HELD = 3;  // coordinates whose weights `outer` keeps in registers
constexpr int THREADS = 256;

struct Layer {
  const real *coords, *params;
  whole dim, hidden;

  // b + U x of one unit for one edge; without b for a derivative.
  __device__ real pre(whole edge, whole unit, bool bias = true) const {
    real sum = bias ? params[dim * hidden + unit] : real(0);
#pragma unroll 1
    for (whole k = 0; k < dim; ++k) sum += params[k * hidden + unit] * coords[edge * dim + k];
    return sum;
  }
};

// dpre = U dx + dU x + db; absent terms are 0.
__device__ inline real tangent(const Layer& layer, const real* dcoords, const real* dparams,
                               whole edge, whole unit) {
  real sum = 0;
  if (dcoords) sum = Layer{dcoords, layer.params, layer.dim, layer.hidden}.pre(edge, unit, false);
  if (dparams) sum += Layer{layer.coords, dparams, layer.dim, layer.hidden}.pre(edge, unit);
  return sum;
}

// The largest number of resident blocks for which registers do not spill.
#define BOUNDS __launch_bounds__(4 * WIDTH, (sizeof(real) == 4 ? 256 : 128) / WIDTH)

// sums[segment, unit, f] = sum over its entries of  act(pre) h,  and in one more row, if requested,
// of h. With `along`, their derivatives  act' dpre h + act dh  and  dh  along the tangents. The
// layer itself may be `given` for each edge instead of coordinates.
extern "C" __global__ void BOUNDS outer(const whole* segments, const int* nodes, const whole* edges,
                                        const real* coords, const real* params, const real* dcoords,
                                        const real* dparams, const real* given, const real* dgiven,
                                        const real* features, const real* dfeatures, real* sums,
                                        whole first, whole dim, whole hidden, whole activation,
                                        whole width, whole along, whole units) {
  __align__(16) __shared__ real hid[2][SHORT][UNITS];
  __align__(16) __shared__ real row[2][SHORT][WIDTH];
  constexpr int columns = WIDTH / 4, threads = columns * (UNITS / 4);
  const whole* segment = segments + 3 * (first + blockIdx.x);
  const whole blocks = (width + WIDTH - 1) / WIDTH;
  const whole unit0 = blockIdx.y / blocks * UNITS, f0 = blockIdx.y % blocks * WIDTH;
  const Layer layer{coords, params, dim, hidden};
  const bool moves = dcoords || dparams || dgiven;  // the hidden layer has a tangent
  const int tx = threadIdx.x % columns, ty = threadIdx.x / columns;
  const whole unit = unit0 + threadIdx.x % UNITS;  // unit that this thread evaluates
  real slopes[HELD] = {};
#pragma unroll
  for (int k = 0; k < HELD; ++k)
    if (params && k < dim && unit < hidden) slopes[k] = params[k * hidden + unit];
  const real bias = params && unit < hidden ? params[dim * hidden + unit] : real(0);
  real sum[4][4] = {}, plain[4] = {};
  for (whole start = segment[1]; start < segment[2]; start += SHORT) {
    const int count = segment[2] - start < SHORT ? static_cast<int>(segment[2] - start) : SHORT;
    for (int i = threadIdx.x; i < SHORT * UNITS; i += threads) {
      const int t = i / UNITS, u = i % UNITS;
      real value = 0, moved = 0;
      if (t < count && unit < hidden) {
        const whole edge = edges[start + t] - 1, place = edge * hidden + unit;
        if (given) {
          value = given[place];
          if (along && moves) moved = dgiven[place];
        } else {
          real pre = bias;
#pragma unroll
          for (int k = 0; k < HELD; ++k)
            if (k < dim) pre += slopes[k] * coords[edge * dim + k];
#pragma unroll 1
          for (whole k = HELD; k < dim; ++k)
            pre += params[k * hidden + unit] * coords[edge * dim + k];
          const Activated a = activate(activation, pre);
          value = a.value;
          if (along && moves) moved = a.slope * tangent(layer, dcoords, dparams, edge, unit);
        }
      }
      hid[0][t][u] = value;
      hid[1][t][u] = moved;
    }
    for (int i = threadIdx.x; i < SHORT * WIDTH; i += threads) {
      const int t = i / WIDTH, f = i % WIDTH;
      const bool there = t < count && f0 + f < width;
      const whole place = there ? (nodes[start + t] - 1) * width + f0 + f : 0;
      row[0][t][f] = there && features ? features[place] : real(0);
      row[1][t][f] = there && along && dfeatures ? dfeatures[place] : real(0);
    }
    __syncthreads();
    for (int term = 0; term < 2; ++term) {
      if (along ? !(term ? dfeatures != nullptr : moves) : term) continue;
      const auto& left = hid[along ? 1 - term : 0];
      const auto& right = row[term];
      const bool counts = ty == 0 && unit0 == 0 && term == static_cast<int>(along);
      for (int t = 0; t < count; ++t) {
        real a[4], b[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) a[i] = left[t][4 * ty + i];
#pragma unroll
        for (int j = 0; j < 4; ++j) b[j] = right[t][4 * tx + j];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] += a[i] * b[j];
        if (!counts) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) plain[j] += b[j];
      }
    }
    __syncthreads();
  }
  real* out = sums + static_cast<whole>(blockIdx.x) * units * width;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const whole f = f0 + 4 * tx + j;
    if (f >= width) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const whole unit = unit0 + 4 * ty + i;
      if (unit < hidden) out[unit * width + f] = sum[i][j];
    }
    if (units > hidden && unit0 == 0 && ty == 0) out[hidden * width + f] = plain[j];
  }
}

#undef BOUNDS
#define BOUNDS __launch_bounds__(THREADS, sizeof(real) == 4 ? 4 : 3)

// VJP of the hidden layer for the entries of a segment, whose hidden units have the cotangent
//   ghid = G h,  G = [units, width] of the segment.
// Computes the gradients by coords, and by U | b summed over the segment. Second order uses
//   hb = dG h + G dh,  pb = act' hb + act'' dpre ghid,  qb = act' ghid.
// If the layer is given, stores only ghid or hb in `by_unit` [entries, hidden].
extern "C" __global__ void BOUNDS
layer_vjp(const whole* segments, const int* nodes, const whole* edges, const real* coords,
          const real* params, const real* dcoords, const real* dparams, const real* features,
          const real* dfeatures, const real* weights, const real* dweights, real* by_unit,
          real* gcoords, real* gparams, whole first, whole dim, whole hidden, whole activation,
          whole width, whole entries, whole second) {
  // Holds the factors first, then the products.
  __align__(16) __shared__ real scratch[2 * LONG * (UNITS + 1)];
  const auto left = reinterpret_cast<real(*)[STEP][LONG + 4]>(scratch);
  const auto right = reinterpret_cast<real(*)[STEP][UNITS + 4]>(scratch + 2 * STEP * (LONG + 4));
  const auto p = reinterpret_cast<real(*)[UNITS + 1]>(scratch);
  const auto q = p + LONG;
  const whole* segment = segments + 3 * (first + blockIdx.x);
  const whole unit0 = static_cast<whole>(blockIdx.y) * UNITS;
  const int units = hidden - unit0 < UNITS ? static_cast<int>(hidden - unit0) : UNITS;
  const int dims = static_cast<int>(dim);
  const Layer layer{coords, params, dim, hidden};
  const int tx = threadIdx.x % (UNITS / 4), ty = threadIdx.x / (UNITS / 4);
  const whole size = (by_unit ? hidden : hidden + 1) * width;
  const whole mine = static_cast<whole>(blockIdx.x) * size;
  real* out = gparams ? gparams + static_cast<whole>(blockIdx.x) * hidden * (dim + 1) : nullptr;
  if (out)
    for (int i = threadIdx.x; i < units * (dims + 1); i += THREADS)
      out[i / units * hidden + unit0 + i % units] = 0;
  for (whole start = segment[1]; start < segment[2]; start += LONG) {
    const int count = segment[2] - start < LONG ? static_cast<int>(segment[2] - start) : LONG;
    real ghid[2][4] = {}, hb[2][4] = {};
    for (whole f0 = 0; f0 < width; f0 += STEP) {
      for (int i = threadIdx.x; i < LONG * STEP; i += THREADS) {
        const int t = i / STEP, f = i % STEP;
        const bool there = t < count && f0 + f < width;
        const whole place = there ? (nodes[start + t] - 1) * width + f0 + f : 0;
        left[0][f][t] = there ? features[place] : real(0);
        left[1][f][t] = there && dfeatures ? dfeatures[place] : real(0);
      }
      for (int i = threadIdx.x; i < UNITS * STEP; i += THREADS) {
        const int u = i / STEP, f = i % STEP;
        const bool there = u < units && f0 + f < width;
        const whole place = there ? mine + (unit0 + u) * width + f0 + f : 0;
        right[0][f][u] = there ? weights[place] : real(0);
        right[1][f][u] = there && dweights ? dweights[place] : real(0);
      }
      __syncthreads();
      for (int f = 0; f < STEP; ++f) {
        real h[2], g[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) h[i] = left[0][f][2 * ty + i];
#pragma unroll
        for (int j = 0; j < 4; ++j) g[j] = right[0][f][4 * tx + j];
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) ghid[i][j] += h[i] * g[j];
        if (!second) continue;
        real dh[2], dg[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) dh[i] = left[1][f][2 * ty + i];
#pragma unroll
        for (int j = 0; j < 4; ++j) dg[j] = right[1][f][4 * tx + j];
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) hb[i][j] += h[i] * dg[j] + dh[i] * g[j];
      }
      __syncthreads();
    }
    if (by_unit) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int t = 2 * ty + i, u = 4 * tx + j;
          if (t < count && u < units)
            by_unit[(start + t) * hidden + unit0 + u] = second ? hb[i][j] : ghid[i][j];
        }
      continue;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        p[2 * ty + i][4 * tx + j] = ghid[i][j];
        q[2 * ty + i][4 * tx + j] = hb[i][j];
      }
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < count * UNITS; i += THREADS) {
      const int t = i / UNITS, u = i % UNITS;
      if (u >= units) continue;
      const whole edge = edges[start + t] - 1;
      const Activated a = activate(activation, layer.pre(edge, unit0 + u));
      const real g = p[t][u];
      p[t][u] = a.slope * (second ? q[t][u] : g);
      if (!second) continue;
      if (dcoords || dparams)
        p[t][u] += a.curvature * tangent(layer, dcoords, dparams, edge, unit0 + u) * g;
      q[t][u] = a.slope * g;
    }
    __syncthreads();
    if (gcoords)
      for (int i = threadIdx.x; i < count * dims; i += THREADS) {
        const int t = i / dims, k = i % dims;
        real sum = 0;
        for (int u = 0; u < units; ++u) sum += p[t][u] * params[k * hidden + unit0 + u];
        if (second && dparams)
          for (int u = 0; u < units; ++u) sum += q[t][u] * dparams[k * hidden + unit0 + u];
        gcoords[(blockIdx.y * entries + start + t) * dim + k] = sum;
      }
    if (out)
      for (int i = threadIdx.x; i < units * (dims + 1); i += THREADS) {
        const int k = i / units, u = i % units;
        real sum = 0;
        for (int t = 0; t < count; ++t) {
          const whole edge = edges[start + t] - 1;
          sum += k < dim ? p[t][u] * coords[edge * dim + k] : p[t][u];
          if (second && dcoords && k < dim) sum += q[t][u] * dcoords[edge * dim + k];
        }
        out[k * hidden + unit0 + u] += sum;
      }
    __syncthreads();
  }
}

// y[edge, unit] = act(pre), with 1 in an extra last column; or the derivatives act' dpre, and 0.
extern "C" __global__ void layer_value(const real* coords, const real* params, const real* dcoords,
                                       const real* dparams, real* y, whole edges, whole dim,
                                       whole hidden, whole activation, whole along) {
  const whole i = thread_number();
  if (i >= edges * (hidden + 1)) return;
  const whole edge = quotient(i, hidden + 1), unit = i - edge * (hidden + 1);
  if (unit == hidden) {
    y[i] = along ? 0 : 1;
    return;
  }
  const Layer layer{coords, params, dim, hidden};
  const Activated a = activate(activation, layer.pre(edge, unit));
  y[i] = along ? a.slope * tangent(layer, dcoords, dparams, edge, unit) : a.value;
}

// Maps the gradient by the hidden units, [edge, unit] with one extra column, to that by their
// arguments: p and, for second order, q as in `layer_vjp`, where hb is the second gradient.
extern "C" __global__ void layer_back(const real* coords, const real* params, const real* dcoords,
                                      const real* dparams, const real* ghid, const real* hb,
                                      real* p, real* q, whole edges, whole dim, whole hidden,
                                      whole activation, whole second) {
  const whole i = thread_number();
  if (i >= edges * hidden) return;
  const whole edge = quotient(i, hidden), unit = i - edge * hidden,
              place = edge * (hidden + 1) + unit;
  const Layer layer{coords, params, dim, hidden};
  const Activated a = activate(activation, layer.pre(edge, unit));
  if (!second) {
    p[i] = a.slope * ghid[place];
    return;
  }
  real sum = hb ? a.slope * hb[place] : real(0);
  if (dcoords || dparams)
    sum += a.curvature * tangent(layer, dcoords, dparams, edge, unit) * ghid[place];
  p[i] = sum;
  q[i] = a.slope * ghid[place];
}

// y[row, column] (+)= the sum over the segments of the row, 0 if it has no entries.
extern "C" __global__ void join(const whole* segments, const whole* joins, const real* parts,
                                real* y, whole rows, whole width, whole add) {
  const whole i = thread_number();
  if (i >= rows * width) return;
  const whole row = quotient(i, width), column = i - row * width;
  real sum = 0;
  for (whole segment = joins[row]; segment < joins[row + 1]; ++segment)
    if (segments[3 * segment + 1] < segments[3 * segment + 2])
      sum += parts[segment * width + column];
  y[i] = add ? y[i] + sum : sum;
}

// y[edge, k] (+)= the sum of x[layer, entry, k] over layers and the entries that share the edge.
extern "C" __global__ void by_edge(const whole* id_offsets, const whole* id_entries, const real* x,
                                   real* y, whole edges, whole entries, whole layers, whole width,
                                   whole add) {
  const whole i = thread_number();
  if (i >= edges * width) return;
  const whole edge = quotient(i, width), k = i - edge * width;
  real sum = 0;
  for (whole e = id_offsets[edge] - 1; e < id_offsets[edge + 1] - 1; ++e)
    for (whole layer = 0; layer < layers; ++layer)
      sum += x[(layer * entries + id_entries[e] - 1) * width + k];
  y[i] = add ? y[i] + sum : sum;
}
