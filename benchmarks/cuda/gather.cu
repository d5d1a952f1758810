// y[row] = sum of the rows src[e] of x over the entries of the row, in float4: each thread has some
// columns of a row, and reads UNROLL entries before it adds them.
extern "C" __global__ void gather(long long rows, long long columns, const int* offsets,
                                  const int* src, const float* x, float* y) {
  const long long row = blockIdx.x * (long long)blockDim.y + threadIdx.y;
  if (row >= rows) return;
  const float4* const from = reinterpret_cast<const float4*>(x);
  float4* const to = reinterpret_cast<float4*>(y);
  for (long long c = threadIdx.x; c < columns; c += blockDim.x) {
    float4 sum = {0, 0, 0, 0};
    int e = offsets[row];
    const int stop = offsets[row + 1];
    for (; e + UNROLL <= stop; e += UNROLL) {
      float4 some[UNROLL];
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) some[k] = from[src[e + k] * columns + c];
#pragma unroll
      for (int k = 0; k < UNROLL; ++k) {
        sum.x += some[k].x;
        sum.y += some[k].y;
        sum.z += some[k].z;
        sum.w += some[k].w;
      }
    }
    for (; e < stop; ++e) {
      const float4 one = from[src[e] * columns + c];
      sum.x += one.x;
      sum.y += one.y;
      sum.z += one.z;
      sum.w += one.w;
    }
    to[row * columns + c] = sum;
  }
}
