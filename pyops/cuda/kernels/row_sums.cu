// The sum of the rows of a matrix: of so many rows by a block each, then of what these leave.
constexpr whole ROWS = 256;

// The sum of rows of x, from `start` to before `end`, of the column of this thread, in float64; in
// the first of the 8 threads that share it.
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

// sums[i, column] = the sum of the i-th ROWS rows of x.
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
