// Sum of the rows of a matrix: partial sums over ROWS rows per block, then their sum.
constexpr whole ROWS = 256;

// Sum in float64 of one column over the rows [start, end), by 8 threads; valid in the first one.
template <class T>
__device__ inline double column_sum(const T* x, whole column, whole columns, whole start,
                                    whole end) {
  __shared__ double part[8][32];
  double sum = 0;
  if (column < columns)
    for (whole row = start + threadIdx.y; row < end; row += 8) sum += x[row * columns + column];
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  for (int i = 1; i < 8; ++i) sum += part[i][threadIdx.x];
  return sum;
}

// sums[i, column] = the sum of the i-th block of ROWS rows of x.
extern "C" __global__ void add_rows(const real* x, double* sums, whole rows, whole columns) {
  const whole column = static_cast<whole>(blockIdx.y) * 32 + threadIdx.x;
  const whole start = blockIdx.x * ROWS, end = start + ROWS < rows ? start + ROWS : rows;
  const double sum = column_sum(x, column, columns, start, end);
  if (threadIdx.y == 0 && column < columns) sums[blockIdx.x * columns + column] = sum;
}

// y[column] (+)= the sum of the rows of x.
extern "C" __global__ void join_rows(const double* x, real* y, whole rows, whole columns,
                                     whole add) {
  const whole column = static_cast<whole>(blockIdx.x) * 32 + threadIdx.x;
  const double sum = column_sum(x, column, columns, 0, rows);
  if (threadIdx.y == 0 && column < columns)
    y[column] = static_cast<real>(add ? y[column] + sum : sum);
}
