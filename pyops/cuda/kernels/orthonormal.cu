// Factors Q and R of a basis,  B = Q R,  and solves with R. Tall matrices are column-major.
constexpr int THREADS = 512, WARPS = THREADS / 32;
// As in the compiled kernels: a column is dependent if its remainder is at most NOISE roundings.
constexpr double NOISE = 4;
constexpr double LARGEST = 1.7976931348623157e308;
#ifdef REAL_IS_FLOAT
constexpr double BIGGEST = 3.4028234663852886e38, SPACING = 1.1920928955078125e-7;
#else
constexpr double BIGGEST = LARGEST, SPACING = 2.220446049250313e-16;
#endif

__device__ inline double block_sum(double value, double* shared) {
  value = lane_sum<32>(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int i = 0; i < WARPS; ++i) value += shared[i];
  return value;
}

__device__ inline double block_max(double value, double* shared) {
  for (int step = 16; step > 0; step /= 2) {
    const double other = __shfl_xor_sync(ALL, value, step);
    value = other > value ? other : value;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int i = 0; i < WARPS; ++i) value = shared[i] > value ? shared[i] : value;
  return value;
}

// Orthonormalizes b in place by Gram-Schmidt, each column projected twice. Stores R, and in `live`
// whether a column is independent (1) or depends on those before it (0).
extern "C" __global__ void gram_schmidt(real* b, real* r, real* live, whole n, whole k) {
  __shared__ double shared[WARPS];
  SHARED(double, c);
  const whole warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (whole j = 0; j < k; ++j) {
    real* x = b + j * n;
    double largest = 0;
    for (whole i = threadIdx.x; i < n; i += THREADS)
      if (fabs(x[i]) > largest) largest = fabs(x[i]);
    largest = block_max(largest, shared);
    int power = 0;
    if (largest > 0 && largest <= BIGGEST) frexp(largest, &power);
    double sum = 0;
    for (whole i = threadIdx.x; i < n; i += THREADS) {
      x[i] = static_cast<real>(ldexp(static_cast<double>(x[i]), -power));
      sum += static_cast<double>(x[i]) * x[i];
    }
    const double before = sqrt(block_sum(sum, shared));
    for (int turn = 0; turn < 2; ++turn) {
      __syncthreads();
      for (whole p = warp; p < j; p += WARPS) {
        double dot = 0;
        for (whole i = lane; i < n; i += 32) dot += static_cast<double>(b[p * n + i]) * x[i];
        dot = lane_sum<32>(dot);
        if (lane == 0) {
          c[p] = dot;
          r[p * k + j] = static_cast<real>(turn ? r[p * k + j] + dot : dot);
        }
      }
      __syncthreads();
      for (whole i = threadIdx.x; i < n; i += THREADS) {
        double left = x[i];
        for (whole p = 0; p < j; ++p) left -= c[p] * b[p * n + i];
        x[i] = static_cast<real>(left);
      }
    }
    sum = 0;
    for (whole i = threadIdx.x; i < n; i += THREADS) sum += static_cast<double>(x[i]) * x[i];
    const double after = sqrt(block_sum(sum, shared));
    const double noise = NOISE * SPACING * sqrt(static_cast<double>(j + 1));
    const bool depends = before <= LARGEST && after <= noise * before;
    for (whole i = threadIdx.x; i < n; i += THREADS)
      x[i] = depends ? real(0) : static_cast<real>(x[i] / after);
    for (whole p = threadIdx.x; p < k; p += THREADS) {
      real value = p < j ? r[p * k + j] : p == j ? static_cast<real>(after) : real(0);
      value = static_cast<real>(ldexp(static_cast<double>(value), power));
      r[p * k + j] = depends ? (p == j ? real(1) : real(0)) : value;
    }
    if (threadIdx.x == 0) live[j] = depends ? 0 : 1;
    __syncthreads();
  }
}

// Solves x R^-1 or, if `transposed`, x R^-T in place; one thread per row of each matrix.
extern "C" __global__ void divide(real* x, const real* r, whole matrices, whole n, whole k,
                                  whole transposed) {
  const whole i = thread_number();
  if (i >= matrices * n) return;
  real* row = x + i / n * n * k + i % n;
  for (whole step = 0; step < k; ++step) {
    const whole c = transposed ? k - 1 - step : step;
    real value = row[c * n];
    if (transposed)
      for (whole p = c + 1; p < k; ++p) value -= row[p * n] * r[c * k + p];
    else
      for (whole p = 0; p < c; ++p) value -= row[p * n] * r[p * k + c];
    row[c * n] = value / r[c * k + c];
  }
}
