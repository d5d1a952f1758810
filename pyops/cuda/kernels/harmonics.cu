// Real spherical harmonics of the directions of vectors, Y_lm = P_l|m|(z) t_m(x, y) with
// t_m = Re (x + iy)^m or, for negative m, Im (x + iy)^|m|. dP_lm / dz is proportional to P_l,m+1.
// LANES lanes process a vector, each of them every LANES-th order m.
constexpr int LANES = 8;

// Coefficients of the recurrences, for P_lm at position l (l + 1) / 2 + m.
struct Table {
  int degree;
  const double *up, *down, *slope, *diagonal;
  __device__ int at(int l, int m) const { return l * (l + 1) / 2 + m; }
};

// P_lm of a fixed order, by recurrence in l.
struct Legendre {
  int m;
  real here, before;
  __device__ explicit Legendre(int order) : m(order), here(0), before(0) {}
  __device__ void step(const Table& table, int l, real z) {
    if (l < m || m > table.degree) return;
    if (l == m) {
      here = static_cast<real>(table.diagonal[m]);
      return;
    }
    const int at = table.at(l, m);
    const real next =
        static_cast<real>(table.up[at]) * z * here - static_cast<real>(table.down[at]) * before;
    before = here;
    here = next;
  }
};

// (x + iy)^m and the two lower powers.
struct Powers {
  real c, s, c1, s1, c2, s2;
  __device__ Powers(real x, real y, int m) : c(1), s(0), c1(0), s1(0), c2(0), s2(0) {
    for (int k = 0; k < m; ++k) {
      c2 = c1, s2 = s1;
      c1 = c, s1 = s;
      c = x * c1 - y * s1;
      s = x * s1 + y * c1;
    }
  }
};

struct Direction {
  real u[3], inverse;  // 0 for a zero vector
  __device__ explicit Direction(const real* v) {
    real size = 0, length = 0;
    for (int k = 0; k < 3; ++k) size = largest(size, v[k] < 0 ? -v[k] : v[k]);
    if (size == 0) size = 1;
    for (int k = 0; k < 3; ++k) length += v[k] / size * (v[k] / size);
    length = sqrt(length);
    inverse = length == 0 ? real(0) : 1 / length;
    for (int k = 0; k < 3; ++k) u[k] = v[k] / size * inverse;
    inverse /= size;
  }
  __device__ real along(const real* p) const { return u[0] * p[0] + u[1] * p[1] + u[2] * p[2]; }
  // (p - u <u, p>) / |v|
  __device__ void across(const real* p, real* du) const {
    const real part = along(p);
    for (int k = 0; k < 3; ++k) du[k] = inverse == 0 ? real(0) : (p[k] - u[k] * part) * inverse;
  }
};

__device__ inline bool nothing(const real* g) { return g[0] == 0 && g[1] == 0 && g[2] == 0; }

#define HARMONICS                                                                         \
  whole samples, whole degree, const double *up, const double *down, const double *slope, \
      const double *diagonal, const real *vectors, const real *tangents
#define GIVEN_TABLE {static_cast<int>(degree), up, down, slope, diagonal}

// y (+)= the harmonics, or their tangents if tangents of the vectors are given.
extern "C" __global__ void evaluate(HARMONICS, whole accumulate, real* y) {
  const whole sample = thread_number() / LANES;
  if (sample >= samples) return;
  const Table table = GIVEN_TABLE;
  const Direction to(vectors + 3 * sample);
  real du[3] = {};
  if (tangents) to.across(tangents + 3 * sample, du);
  real* const row = y + sample * (degree + 1) * (degree + 1);
  for (int m = threadIdx.x % LANES; m <= table.degree; m += LANES) {
    const Powers t(to.u[0], to.u[1], m);
    Legendre p(m), q(m + 1);
    for (int l = m; l <= table.degree; ++l) {
      p.step(table, l, to.u[2]);
      q.step(table, l, to.u[2]);
      real plus = p.here * t.c, minus = p.here * t.s;
      if (tangents) {
        const real by_z = m < l ? static_cast<real>(table.slope[table.at(l, m)]) * q.here : real(0);
        plus = minus = 0;
        if (m > 0) {
          plus = p.here * m * (t.c1 * du[0] - t.s1 * du[1]);
          minus = p.here * m * (t.s1 * du[0] + t.c1 * du[1]);
        }
        if (m < l) {
          plus += by_z * t.c * du[2];
          minus += by_z * t.s * du[2];
        }
      }
      real* const place = row + l * (l + 1);
      place[m] = plus + (accumulate ? place[m] : real(0));
      if (m > 0) place[-m] = minus + (accumulate ? place[-m] : real(0));
    }
  }
}

// out (+)= the gradients by the vectors of <gy, y>, or of <gy, tangents of y>.
extern "C" __global__ void vjp(HARMONICS, const real* gy, whole accumulate, real* out) {
  const whole unit = thread_number() / LANES, sample = unit < samples ? unit : 0;
  const int lane = threadIdx.x % LANES;
  if (samples == 0) return;
  const Table table = GIVEN_TABLE;
  const Direction to(vectors + 3 * sample);
  const real* const p_vector = tangents ? tangents + 3 * sample : 0;
  real du[3] = {};
  if (tangents) to.across(p_vector, du);
  const real* const row = gy + sample * (degree + 1) * (degree + 1);
  real first[3] = {}, second[3] = {};  // gradients by u of y and of its tangent
  for (int m = lane; m <= table.degree; m += LANES) {
    const Powers t(to.u[0], to.u[1], m);
    Legendre p(m), q(m + 1), r(m + 2);
    real a[2] = {}, b[2] = {}, c[2] = {};
    for (int l = m; l <= table.degree; ++l) {
      p.step(table, l, to.u[2]);
      q.step(table, l, to.u[2]);
      r.step(table, l, to.u[2]);
      if (l == 0) continue;
      const real plus = row[l * (l + 1) + m], minus = row[l * (l + 1) - m];
      a[0] += plus * p.here;
      a[1] += minus * p.here;
      if (m >= l) continue;
      real size = static_cast<real>(table.slope[table.at(l, m)]);
      b[0] += size * plus * q.here;
      b[1] += size * minus * q.here;
      if (m + 1 >= l) continue;
      size *= static_cast<real>(table.slope[table.at(l, m + 1)]);
      c[0] += size * plus * r.here;
      c[1] += size * minus * r.here;
    }
    first[2] += b[0] * t.c;
    second[2] += c[0] * t.c * du[2];
    if (m == 0) continue;
    first[0] += m * (a[0] * t.c1 + a[1] * t.s1);
    first[1] += m * (a[1] * t.c1 - a[0] * t.s1);
    first[2] += b[1] * t.s;
    second[2] += c[1] * t.s * du[2];
    for (int n = 0; n < 2; ++n) {
      const real tx = m * (n ? t.s1 : t.c1), ty = m * (n ? t.c1 : -t.s1);
      const real txx = m * (m - 1) * (n ? t.s2 : t.c2), txy = m * (m - 1) * (n ? t.c2 : -t.s2);
      second[0] += a[n] * (txx * du[0] + txy * du[1]) + b[n] * tx * du[2];
      second[1] += a[n] * (txy * du[0] - txx * du[1]) + b[n] * ty * du[2];
      second[2] += b[n] * (tx * du[0] + ty * du[1]);
    }
  }
  for (int k = 0; k < 3; ++k) {
    first[k] = lane_sum<LANES>(first[k]);
    second[k] = lane_sum<LANES>(second[k]);
  }
  if (lane || unit >= samples) return;
  real gradient[3] = {};
  if (tangents) {
    const bool none = nothing(first);
    const real along = to.along(p_vector), back = to.along(first);
    real by_u[3];
    for (int k = 0; k < 3; ++k) {
      by_u[k] = second[k];
      if (!none) by_u[k] -= (along * first[k] + back * p_vector[k]) * to.inverse;
    }
    if (!nothing(by_u)) to.across(by_u, gradient);
    const real change = du[0] * first[0] + du[1] * first[1] + du[2] * first[2];
    for (int k = 0; k < 3 && !none; ++k) gradient[k] -= change * to.inverse * to.u[k];
  } else if (!nothing(first)) {
    to.across(first, gradient);
  }
  for (int k = 0; k < 3; ++k) {
    real* const place = out + 3 * sample + k;
    *place = gradient[k] + (accumulate ? *place : real(0));
  }
}
