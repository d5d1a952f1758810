// Layers of a network of each entry between their matrix products, and the norm of its result.
//
// Rows of a batch are entries. A pointer is null if its array is absent.
//@ activations
constexpr int WARP = 32;
constexpr real EPSILON = real(1e-5);

// z (+)= bias + src[node] + dst[row]  of each entry and unit;  h = act(z), if requested. With `at`,
// z is the tangent of these preactivations, and  h = act'(at) z.
extern "C" __global__ void layer_value(const real* bias, const real* src, const int* nodes,
                                       const real* dst, const int* rows, const real* at, real* z,
                                       real* h, whole entries, whole width, whole activation,
                                       whole add) {
  const whole i = thread_number();
  if (i >= entries * width) return;
  const whole entry = quotient(i, width), unit = i - entry * width;
  real sum = add ? z[i] : real(0);
  if (bias) sum += bias[unit];
  if (src) sum += src[(nodes[entry] - 1) * width + unit];
  if (dst) sum += dst[(rows[entry] - 1) * width + unit];
  z[i] = sum;
  if (!h) return;
  const Activated a = activate(activation, at ? at[i] : sum);
  h[i] = at ? a.slope * sum : a.value;
}

// Replaces the gradient g by h by that by z,  act'(z) g.  With the tangent dz of z, also stores the
// tangent of the result,  dg = act'(z) dh + act''(z) dz g,  where dh is the tangent of the given g.
extern "C" __global__ void layer_vjp(const real* z, const real* dz, const real* dh, real* g,
                                     real* dg, whole size, whole activation) {
  const whole i = thread_number();
  if (i >= size) return;
  const Activated a = activate(activation, z[i]);
  const real by_h = g[i];
  if (dz) {
    const real sum = dh ? a.slope * dh[i] : real(0);
    dg[i] = sum + a.curvature * dz[i] * by_h;
  }
  g[i] = a.slope * by_h;
}

// A warp computes a row; its lanes have every 32nd column.
__device__ inline whole warp_number() { return thread_number() / WARP; }
template <class T>
__device__ inline T row_mean(T sum, whole width) {
  return lane_sum<WARP>(sum) / width;
}

// Subtracts the mean of each row and divides by its deviation, whose inverse is stored. If
// requested,  y = scale o + shift. Squares in float32 would overflow.
extern "C" __global__ void normalise(real* o, real* inverse, const real* scale, const real* shift,
                                     real* y, whole rows, whole width) {
  const whole row = warp_number(), start = row * width, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  double sum = 0;
  for (whole c = lane; c < width; c += WARP) sum += o[start + c];
  const double center = row_mean(sum, width);
  sum = 0;
  for (whole c = lane; c < width; c += WARP) {
    const double off = o[start + c] - center;
    sum += off * off;
  }
  const double r = 1 / sqrt(row_mean(sum, width) + EPSILON);
  for (whole c = lane; c < width; c += WARP) {
    const real unit = static_cast<real>(r * (o[start + c] - center));
    o[start + c] = unit;
    if (y) y[start + c] = scale[c] * unit + shift[c];
  }
  if (lane == 0) inverse[row] = static_cast<real>(r);
}

// Replaces the tangents t of the rows by those of the normalised rows o; stores the tangents of the
// inverse deviations. If requested,  y = scale t + dscale o + dshift.
extern "C" __global__ void normalise_tangent(const real* o, const real* inverse, real* t,
                                             real* dinverse, const real* scale, const real* dscale,
                                             const real* dshift, real* y, whole rows, whole width) {
  const whole row = warp_number(), start = row * width, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  real sum = 0, dot = 0;
  for (whole c = lane; c < width; c += WARP) {
    sum += t[start + c];
    dot += o[start + c] * t[start + c];
  }
  const real center = row_mean(sum, width), along = row_mean(dot, width), r = inverse[row];
  for (whole c = lane; c < width; c += WARP) {
    const real unit = o[start + c], moved = r * (t[start + c] - center - along * unit);
    t[start + c] = moved;
    if (!y) continue;
    const real moves = dscale ? dscale[c] * unit + dshift[c] : real(0);
    y[start + c] = scale[c] * moved + moves;
  }
  if (lane == 0) dinverse[row] = -r * r * along;
}

// Replaces the gradient g by y by that by the rows before the norm. With the tangents t and
// dinverse, stores the tangent of the result, dg.
extern "C" __global__ void norm_vjp(const real* o, const real* inverse, const real* t,
                                    const real* dinverse, const real* scale, const real* dscale,
                                    real* g, real* dg, whole rows, whole width) {
  const whole row = warp_number(), start = row * width, lane = threadIdx.x % WARP;
  if (row >= rows) return;
  real sum = 0, dot = 0, dsum = 0, ddot = 0;
  for (whole c = lane; c < width; c += WARP) {
    const real unit = o[start + c], by_y = g[start + c], by_unit = scale[c] * by_y;
    sum += by_unit;
    dot += by_unit * unit;
    if (!t) continue;
    const real dby_unit = dscale ? dscale[c] * by_y : real(0);
    dsum += dby_unit;
    ddot += dby_unit * unit + by_unit * t[start + c];
  }
  const real center = row_mean(sum, width), along = row_mean(dot, width), r = inverse[row];
  const real dcenter = row_mean(dsum, width), dalong = row_mean(ddot, width);
  for (whole c = lane; c < width; c += WARP) {
    const real unit = o[start + c], by_y = g[start + c];
    const real rest = scale[c] * by_y - center - along * unit;
    g[start + c] = r * rest;
    if (!t) continue;
    const real dby_unit = dscale ? dscale[c] * by_y : real(0);
    dg[start + c] =
        r * (dby_unit - dcenter - along * t[start + c] - dalong * unit) + dinverse[row] * rest;
  }
}
