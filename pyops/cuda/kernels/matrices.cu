// Products of features with the matrices of their edges, kappa[edge, inward, outward], or with
// diagonal ones, kappa[edge, width].
//
// A segment of a row is given by row, start and end, 0-based. A block has LANES threads along the
// output features.
//! LANES 8 32
constexpr int THREADS = 256, GROUPS = THREADS / LANES;

// y[segment, o] = sum of  h[f] kappa[f, o]  over the entries of a segment and f.
extern "C" __global__ void into_rows(const whole* segments, const int* nodes, const whole* edges,
                                     const real* kappa, const real* features, real* y, whole inward,
                                     whole outward) {
  __shared__ real part[GROUPS][LANES];
  const whole* segment = segments + 3 * static_cast<whole>(blockIdx.x);
  const whole o = static_cast<whole>(blockIdx.y) * LANES + threadIdx.x;
  const whole start = segment[1], end = segment[2];
  real sum = 0;
  if (o < outward) {
    whole entry = start + threadIdx.y / inward, f = threadIdx.y % inward;
    const whole entries = GROUPS / inward, rest = GROUPS % inward;
    while (entry < end) {
      const real h = features[(nodes[entry] - 1) * inward + f];
      sum += h * kappa[((edges[entry] - 1) * inward + f) * outward + o];
      entry += entries;
      f += rest;
      if (f >= inward) {
        f -= inward;
        ++entry;
      }
    }
  }
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || o >= outward) return;
  for (int i = 1; i < GROUPS; ++i) sum += part[i][threadIdx.x];
  y[blockIdx.x * outward + o] = sum;
}

// y[segment, f] = sum of  kappa[f, o] g[o]  over the entries of a segment and o.
extern "C" __global__ void out_of_rows(const whole* segments, const int* nodes, const whole* edges,
                                       const real* kappa, const real* g, real* y, whole inward,
                                       whole outward) {
  const whole* segment = segments + 3 * static_cast<whole>(blockIdx.x);
  const whole f = static_cast<whole>(blockIdx.y) * GROUPS + threadIdx.y;
  real sum = 0;
  if (f < inward)
    for (whole entry = segment[1]; entry < segment[2]; ++entry) {
      const real* row = kappa + ((edges[entry] - 1) * inward + f) * outward;
      const real* by = g + (nodes[entry] - 1) * outward;
      for (whole o = threadIdx.x; o < outward; o += LANES) sum += row[o] * by[o];
    }
  sum = lane_sum<LANES>(sum);
  if (threadIdx.x == 0 && f < inward) y[blockIdx.x * inward + f] = sum;
}

// y[edge, f, o] (+)= the sum of  h[f] g[o]  over the entries that share the edge.
extern "C" __global__ void products(const whole* id_offsets, const whole* id_entries,
                                    const int* nodes, const int* rows, const real* features,
                                    const real* g, real* y, whole inward, whole outward,
                                    whole add) {
  const int q = blockIdx.y * blockDim.x + threadIdx.x;
  if (q >= inward * outward) return;
  const int width = static_cast<int>(outward), f = q / width, o = q % width;
  real sum = 0;
  for (whole i = id_offsets[blockIdx.x] - 1; i < id_offsets[blockIdx.x + 1] - 1; ++i) {
    const whole entry = id_entries[i] - 1;
    sum += features[(nodes[entry] - 1) * inward + f] * g[(rows[entry] - 1) * outward + o];
  }
  real* place = y + blockIdx.x * inward * outward + q;
  *place = add ? *place + sum : sum;
}

// y[segment, c] = sum of  h[c] kappa[c]  over the entries of a segment, for diagonal kappa.
extern "C" __global__ void diagonal_rows(const whole* segments, const int* nodes,
                                         const whole* edges, const real* kappa,
                                         const real* features, real* y, whole width) {
  __shared__ real part[GROUPS][LANES];
  const whole* segment = segments + 3 * static_cast<whole>(blockIdx.x);
  const whole c = static_cast<whole>(blockIdx.y) * LANES + threadIdx.x;
  real sum = 0;
  if (c < width)
    for (whole entry = segment[1] + threadIdx.y; entry < segment[2]; entry += GROUPS)
      sum += features[(nodes[entry] - 1) * width + c] * kappa[(edges[entry] - 1) * width + c];
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y || c >= width) return;
  for (int i = 1; i < GROUPS; ++i) sum += part[i][threadIdx.x];
  y[blockIdx.x * width + c] = sum;
}

// y[edge, c] = the sum of  h[c] g[c]  over the entries that share the edge.
extern "C" __global__ void diagonal_products(const whole* id_offsets, const whole* id_entries,
                                             const int* nodes, const int* rows,
                                             const real* features, const real* g, real* y,
                                             whole edges, whole width) {
  const whole q = thread_number();
  if (q >= edges * width) return;
  const whole edge = quotient(q, width), c = q - edge * width;
  real sum = 0;
  for (whole i = id_offsets[edge] - 1; i < id_offsets[edge + 1] - 1; ++i) {
    const whole entry = id_entries[i] - 1;
    sum += features[(nodes[entry] - 1) * width + c] * g[(rows[entry] - 1) * width + c];
  }
  y[q] = sum;
}

// y[row, column] (+)= the sum over the segments of the row.
extern "C" __global__ void join(const whole* joins, const real* parts, real* y, whole rows,
                                whole width, whole add) {
  const whole i = thread_number();
  if (i >= rows * width) return;
  const whole row = i / width, column = i % width;
  real sum = 0;
  for (whole segment = joins[row]; segment < joins[row + 1]; ++segment)
    sum += parts[segment * width + column];
  y[i] = add ? y[i] + sum : sum;
}
