/* A graph neural operator from C: its value, its gradients, and central differences beside them. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "pyops.h"

enum { NODES = 30, EDGES = 200, DIM = 3, HIDDEN = 8, INWARD = 4, OUTWARD = 5 };

/* All inputs lie in one array, and so do their gradients: features, coordinates, parameters. */
enum {
  COORDS = NODES * INWARD,
  PARAMS = COORDS + EDGES * DIM,
  ALL = PARAMS + HIDDEN * (DIM + 1) + (HIDDEN + 1) * INWARD * OUTWARD
};

static int32_t src[EDGES], dst[EDGES], in_nodes[EDGES];
static int64_t in_offsets[NODES + 1], in_edges[EDGES];
static double inputs[ALL], gradients[ALL], direction[ALL], moved[ALL];
static double y[NODES * OUTWARD], gy[NODES * OUTWARD];

static void fill(double *array, int length) {
  for (int i = 0; i < length; i++) array[i] = 2.0 * rand() / RAND_MAX - 1;
}

static void check(int32_t status, const char *what) {
  if (status == 0) return;
  fprintf(stderr, "%s: status %d\n", what, (int)status);
  exit(1);
}

/* <gy, y> */
static double value(const double *x) {
  int32_t status;
  double sum = 0;
  pyops_gno_conv_forward_r8(NODES, NODES, EDGES, EDGES, DIM, HIDDEN, INWARD, OUTWARD,
                            PYOPS_GNO_CONV_ACTIVATION_TANH, pyops_available_threads(), 0,
                            in_offsets, in_nodes, in_edges, x, x + COORDS, x + PARAMS, y, &status);
  check(status, "forward");
  for (int i = 0; i < NODES * OUTWARD; i++) sum += gy[i] * y[i];
  return sum;
}

int main(void) {
  const double step = 1e-6;
  double expected = 0, difference = 0;
  int64_t wrong;
  int32_t status;

  for (int e = 0; e < EDGES; e++) {
    src[e] = rand() % NODES;
    dst[e] = rand() % NODES;
  }
  pyops_pack_edges(NODES, NODES, EDGES, EDGES, 0, dst, src, NULL, in_offsets, in_nodes, in_edges,
                   &wrong, &status);
  check(status, "pack_edges");

  fill(inputs, ALL);
  fill(direction, ALL);
  fill(gy, NODES * OUTWARD);
  /* The gradients by all three inputs, of edges that no two entries share. */
  pyops_gno_conv_backward_r8(NODES, NODES, EDGES, EDGES, DIM, HIDDEN, INWARD, OUTWARD,
                             PYOPS_GNO_CONV_ACTIVATION_TANH, pyops_available_threads(), 0,
                             1 | 2 | 4, 0, in_offsets, in_nodes, in_edges, NULL, NULL, inputs,
                             inputs + COORDS, inputs + PARAMS, gy, gradients, gradients + COORDS,
                             gradients + PARAMS, &status);
  check(status, "backward");

  for (int sign = -1; sign <= 1; sign += 2) {
    for (int i = 0; i < ALL; i++) moved[i] = inputs[i] + sign * step * direction[i];
    difference += sign * value(moved) / (2 * step);
  }
  for (int i = 0; i < ALL; i++) expected += gradients[i] * direction[i];
  printf("gradient along a direction %.10f, central difference %.10f\n", expected, difference);
  return fabs(expected - difference) < 1e-6 * fabs(expected) ? 0 : 1;
}
