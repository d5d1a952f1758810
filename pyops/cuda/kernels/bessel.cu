// Radial bases with the envelope u: x u(x) times spherical Bessel functions divided by their
// argument, which avoids cancellation for small x. Computed in double precision.
constexpr int LANES = 32;

struct Jet {
  double value, slope, bend;
};

// x u(x) = (1 - x)^3 times a polynomial; its derivative is x^exponent (1 - x)^2 times a constant.
// Neither cancels near 0 or 1.
__device__ inline Jet envelope(whole exponent, double x) {
  double g = static_cast<double>((exponent + 1) * (exponent + 2) / 2);
  double low = g * static_cast<double>(exponent + 3);
  for (whole k = exponent; k >= 1; --k) {
    g = g * x + static_cast<double>(k * (k + 1) / 2);
    if (k > 1) low *= x;
  }
  const double w = 1 - x, e = static_cast<double>(exponent);
  return {w * w * w * g, -w * w * x * low, -w * low * (e - (e + 2) * x)};
}

// j_l(t) / t^power: a power series below l + 3/2, elsewhere a recurrence.
__device__ inline Jet bessel(int l, int power, double t) {
  if (t < l + 1.5) {
    const double square = t * t;
    double c = 1, s = 0, s1 = 0, s2 = 0, p = 1, p1 = 0, p2 = 0;
    for (int k = 1; k <= l; ++k) c /= 2 * k + 1;
    for (int k = 0; k <= 40; ++k) {
      s += c * p;
      s1 += c * p1;
      s2 += c * p2;
      const double last = c * p2 / s2;  // the series with the slowest decay
      if (k > 2 && last < 1e-18 && last > -1e-18) break;
      p2 = p2 * square + 2 * p1;
      p1 = p1 * square + p;
      p *= square;
      c /= -2.0 * (k + 1) * (2 * l + 2 * k + 3);
    }
    const int rise = l - power;
    double low = 1, middle, high;
    for (int k = 0; k < rise - 2; ++k) low *= t;
    for (int k = rise - 2; k < 0; ++k) low /= t;
    middle = rise == 1 || rise == 0 ? (rise == 1 ? 1 : 1 / t) : low * t;
    high = rise == 0 ? 1 : middle * t;
    const double bend = rise * (rise - 1) == 0 ? 0 : rise * (rise - 1) * low * s;
    const double slope = rise == 0 ? 0 : rise * middle * s;
    return {high * s, 2 * high * t * s1 + slope,
            high * (2 * (2 * rise + 1) * s1 + 4 * square * s2) + bend};
  }
  double here = sin(t) / t, before = cos(t) / t;
  for (int k = 0; k < l; ++k) {
    const double next = (2 * k + 1) / t * here - before;
    before = here;
    here = next;
  }
  double s = here, s1 = before - (l + 1) / t * here;
  double s2 = (l * (l + 1) / (t * t) - 1) * here - 2 / t * s1;
  for (int k = 0; k < power; ++k) {
    s /= t;
    s1 = (s1 - s) / t;
    s2 = (s2 - 2 * s1) / t;
  }
  return {s, s1, s2};
}

__device__ inline bool inside(double x) { return !(x <= 0 || x >= 1); }

// Value of a basis column with its derivatives by x, and by the frequency w if it has one.
struct Column {
  double y, x, xx, w, xw, ww;
};

__device__ inline Column radial(double x, const Jet& e, double w) {
  const double size = w < 0 ? -w : w, t = size * x, c = cos(t), s = sin(t);
  Jet j = bessel(0, 0, t);
  j = {w * j.value, w * size * j.slope, w * w * w * j.bend};
  return {e.value * j.value,
          e.slope * j.value + e.value * j.slope,
          e.bend * j.value + 2 * e.slope * j.slope + e.value * j.bend,
          e.value * c,
          e.slope * c - e.value * size * s,
          -e.value * x * (w < 0 ? -s : s)};
}

__device__ inline Column spherical(double x, const Jet& e, double zero, double norm, int l) {
  const Jet j = bessel(l, 1, zero * x);
  return {norm * e.value * j.value,
          norm * (e.slope * j.value + zero * e.value * j.slope),
          norm * (e.bend * j.value + zero * (2 * e.slope * j.slope + zero * e.value * j.bend)),
          0,
          0,
          0};
}

// Columns of a basis: sines with given frequencies, or Bessel functions of each degree with given
// zeros and norms.
struct Basis {
  whole columns, exponent, each;
  const real* frequencies;
  const double *zeros, *norms;

  __device__ Column at(double x, const Jet& e, whole q) const {
    if (frequencies) return radial(x, e, frequencies[q]);
    return spherical(x, e, zeros[q], norms[q], static_cast<int>(q / each));
  }
};

#define BASIS                                                                        \
  whole samples, whole columns, whole exponent, whole each, const real *frequencies, \
      const double *zeros, const double *norms, const real *distances
#define GIVEN_BASIS {columns, exponent, each, frequencies, zeros, norms}

extern "C" __global__ void evaluate(BASIS, whole accumulate, real* y) {
  const whole unit = thread_number();
  if (unit >= samples * columns) return;
  const whole sample = unit / columns, q = unit % columns;
  const Basis basis = GIVEN_BASIS;
  const double x = distances[sample];
  const real value =
      inside(x) ? static_cast<real>(basis.at(x, envelope(exponent, x), q).y) : real(0);
  y[unit] = value + (accumulate ? y[unit] : real(0));
}

// Gradients of <gy, y>, or of <hx, gradient by x> + <hw, gradient by w> if `second`: by x; by w,
// for each sample; and by gy. LANES lanes process a sample.
extern "C" __global__ void vjp(BASIS, const real* gy, whole second, const real* hx, const real* hw,
                               whole accumulate, real* by_x, double* by_w, real* dgy) {
  const whole sample = thread_number() / LANES;
  const int lane = threadIdx.x % LANES;
  if (sample >= samples) return;
  const Basis basis = GIVEN_BASIS;
  const double x = distances[sample];
  const bool in = inside(x);
  const Jet e = envelope(exponent, in ? x : 0.5);
  const double dx = hx ? hx[sample] : real(0);
  double total = 0;
  for (whole q = lane; q < columns; q += LANES) {
    const whole at = sample * columns + q;
    double px = 0, pw = 0, dy = 0;
    if (in) {
      const Column f = basis.at(x, e, q);
      px = f.x, pw = f.w;
      if (second) {
        px = pw = 0;
        if (hx) px = dx * f.xx, pw = dx * f.xw, dy = dx * f.x;
        if (hw) px += hw[q] * f.xw, pw += hw[q] * f.ww, dy += hw[q] * f.w;
      }
      const double g = by_x || by_w ? static_cast<double>(gy[at]) : 0.0;
      px *= g;
      pw *= g;
    }
    total += px;
    if (by_w) by_w[at] = pw;
    if (dgy) dgy[at] = static_cast<real>(dy) + (accumulate ? dgy[at] : real(0));
  }
  if (!by_x) return;
  total = lane_sum<LANES>(total);
  if (lane == 0) by_x[sample] = static_cast<real>(total) + (accumulate ? by_x[sample] : real(0));
}
