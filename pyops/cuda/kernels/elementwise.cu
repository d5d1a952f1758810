// Elementwise functions with broadcasting, by their codes in pyops/_functions.py.
//
// Tables have a row for each axis of the iteration space: its extent, then the strides along it of
// the operands x, y, g, h and k and of the result.
//@ functions
constexpr int COLUMNS = 7, RESULT = 6, EACH = 4;

struct Place {
  whole at[RESULT];  // offsets of the operands and of the result
};

// Adds to `place` the offsets of element number `element` of the axes.
template <class Number>
__device__ inline void locate(const whole* table, whole axes, Number element, Place& place) {
  for (whole axis = axes - 1; axis >= 0; --axis) {
    const whole* row = table + COLUMNS * axis;
    Number here = element;
    if (axis > 0) {
      const Number extent = static_cast<Number>(row[0]);
      element /= extent;
      here -= element * extent;
    }
#pragma unroll
    for (int i = 0; i < RESULT; ++i) place.at[i] += static_cast<whole>(here) * row[1 + i];
  }
}

__device__ inline void move(const whole* table, whole axes, whole element, Place& place) {
  if (element >> 32) locate(table, axes, element, place);
  else locate(table, axes, static_cast<unsigned>(element), place);
}

struct Operands {
  const real *x, *y, *g, *h, *k;

  __device__ real value(whole form, real p, const Place& place) const {
    const real one = x ? x[place.at[0]] : real(0), other = y ? y[place.at[1]] : real(0);
    const real by = g ? g[place.at[2]] : real(0), along = h ? h[place.at[3]] : real(0);
    return evaluate(form, p, one, other, by, along, k ? k[place.at[4]] : real(0));
  }
};

// z (+)= one form of a function, without reduction.
extern "C" __global__ void map(const whole* table, const real* x, const real* y, const real* g,
                               const real* h, const real* k, real* z, whole axes, whole elements,
                               whole form, real p, whole add) {
  const Operands operands{x, y, g, h, k};
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const whole element = (EACH * static_cast<whole>(blockIdx.x) + i) * blockDim.x + threadIdx.x;
    if (element >= elements) return;
    Place place{};
    move(table, axes, element, place);
    const real value = operands.value(form, p, place);
    real& out = z[place.at[RESULT - 1]];
    out = add ? out + value : value;
  }
}

// Combines two values: sum (1), maximum (2) or minimum (3).
__device__ inline double both(whole operation, double a, double b) {
  if (operation == 1) return a + b;
  if (a != a) return a;
  return (operation == 2 ? a >= b : a <= b) ? a : b;
}

__device__ inline double none(whole operation) {
  if (operation == 1) return 0;
  return operation == 2 ? -INFINITY : INFINITY;
}

// parts[part, element], in float64: partial reductions. A block reduces one part of the reduced
// axes for some elements of the kept axes.
extern "C" __global__ void reduce(const whole* kept, const whole* reduced, const real* x,
                                  const real* y, const real* g, const real* h, const real* k,
                                  double* parts, whole kept_axes, whole reduced_axes,
                                  whole elements, whole terms, whole each, whole form, real p,
                                  whole operation) {
  __shared__ double sums[256];
  const Operands operands{x, y, g, h, k};
  const whole element = static_cast<whole>(blockIdx.x) * blockDim.x + threadIdx.x;
  const whole start = blockIdx.y * each, end = start + each < terms ? start + each : terms;
  double sum = none(operation);
  if (element < elements) {
    Place base{};
    move(kept, kept_axes, element, base);
    for (whole term = start + threadIdx.y; term < end; term += blockDim.y) {
      Place place = base;
      move(reduced, reduced_axes, term, place);
      sum = both(operation, sum, static_cast<double>(operands.value(form, p, place)));
    }
  }
  double* mine = sums + threadIdx.y * blockDim.x + threadIdx.x;
  *mine = sum;
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) *mine = both(operation, *mine, mine[half * blockDim.x]);
    __syncthreads();
  }
  if (threadIdx.y == 0 && element < elements) parts[blockIdx.y * elements + element] = *mine;
}

// z (+)= the combined parts, divided.
extern "C" __global__ void settle(const whole* kept, const double* parts, real* z, whole kept_axes,
                                  whole elements, whole count, whole operation,
                                  const double* divisor, whole add) {
  const whole element = thread_number();
  if (element >= elements) return;
  double sum = parts[element];
  for (whole part = 1; part < count; ++part)
    sum = both(operation, sum, parts[part * elements + element]);
  Place place{};
  move(kept, kept_axes, element, place);
  real& out = z[place.at[RESULT - 1]];
  const real value = static_cast<real>(sum / *divisor);
  out = add ? out + value : value;
}
