/* Reads a model, compares its gradients with central differences, takes a step and writes it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pyops.h"

static int failures = 0;

static void expect(int holds, const char *what) {
  if (!holds) {
    printf("failed: %s\n", what);
    ++failures;
  }
}

static float sum_of_output(void *model) {
  float y[2], sum = 0;
  expect(pyops_model_apply(model) == 0, "apply");
  expect(pyops_model_get_r4(model, "output:0", y) == 0, "output");
  for (int i = 0; i < 2; ++i) sum += y[i];
  return sum;
}

int main(void) {
  const float step = 1e-2f;
  float x[3][3] = {{0.1f, 0.2f, 0.3f}, {0.5f, 0.4f, 0.3f}, {0.9f, 0.1f, 0.2f}};
  float b[4], gb[4], gx[3][3], high, low;
  double cutoff = 0;
  int64_t rows, columns;
  char message[300];
  void *model = pyops_model_new();
  expect(model != NULL, "new");
  expect(pyops_model_load(model, "absent.safetensors", 0) == PYOPS_WRONG_FILE, "absent");
  pyops_model_message(model, sizeof message, message);
  expect(strcmp(message, "load: absent.safetensors: cannot be opened") == 0, message);
  expect(pyops_model_apply(model) == PYOPS_WRONG_ARGUMENT, "nothing to apply");
  expect(pyops_model_load(model, "model.safetensors", 0) == 0, "load");
  expect(pyops_model_precision(model) == 4, "precision");
  expect(pyops_model_number(model, "cutoff", &cutoff) == 0 && cutoff == 5, "cutoff");
  expect(pyops_model_number(model, "none", &cutoff) == PYOPS_WRONG_ARGUMENT, "none");
  expect(pyops_model_apply(model) == PYOPS_WRONG_ARGUMENT, "no input");
  pyops_model_message(model, 9, message);
  expect(strcmp(message, "apply: x") == 0, message);
  expect(pyops_model_set_real_r8(model, "x", 1, 1, &cutoff) == PYOPS_WRONG_ARGUMENT, "float64");
  expect(pyops_model_set_index(model, "x", 0, NULL) == PYOPS_WRONG_ARGUMENT, "no index");
  int64_t end = 0;
  expect(pyops_model_set_graph(model, "x", 1, 1, 1, &end, &end) == PYOPS_WRONG_ARGUMENT,
         "no graph");
  end = 1;
  expect(pyops_model_set_graph(model, "x", 1, 1, 1, &end, &end) == PYOPS_WRONG_INDEX, "no node");
  expect(pyops_model_set_real_r4(model, "x", 3, 3, x[0]) == 0, "set");
  expect(pyops_model_get_r4(model, "output:0", b) == PYOPS_WRONG_ARGUMENT, "no output yet");
  sum_of_output(model);
  expect(pyops_model_shape(model, "output:0", &rows, &columns) == 0, "shape");
  expect(rows == 1 && columns == 2, "shape of the output");
  expect(pyops_model_backward_r4(model, NULL) == 0, "backward");
  expect(pyops_model_gradient_r4(model, "b", gb) == 0, "gradient by a parameter");
  expect(pyops_model_gradient_r4(model, "x", gx[0]) == 0, "gradient by an input");
  expect(pyops_model_get_r4(model, "b", b) == 0, "values");
  for (int i = 0; i < 4; ++i) {
    float moved[4];
    memcpy(moved, b, sizeof b);
    moved[i] = b[i] + step;
    pyops_model_set_parameter_r4(model, "b", moved);
    high = sum_of_output(model);
    moved[i] = b[i] - step;
    pyops_model_set_parameter_r4(model, "b", moved);
    low = sum_of_output(model);
    expect(fabsf((high - low) / (2 * step) - gb[i]) < 1e-3f, "gradient by a parameter");
  }
  pyops_model_set_parameter_r4(model, "b", b);
  for (int i = 0; i < 9; ++i) {
    float kept = x[i / 3][i % 3];
    x[i / 3][i % 3] = kept + step;
    pyops_model_set_real_r4(model, "x", 3, 3, x[0]);
    high = sum_of_output(model);
    x[i / 3][i % 3] = kept - step;
    pyops_model_set_real_r4(model, "x", 3, 3, x[0]);
    low = sum_of_output(model);
    x[i / 3][i % 3] = kept;
    expect(fabsf((high - low) / (2 * step) - gx[i / 3][i % 3]) < 1e-3f, "gradient by an input");
  }
  for (int i = 0; i < 4; ++i) b[i] += 0.1f * gb[i] + 1;
  pyops_model_set_parameter_r4(model, "b", b);
  expect(pyops_model_zero_grad(model) == 0, "zero_grad");
  expect(pyops_model_gradient_r4(model, "b", gb) == 0 && gb[0] == 0, "gradients of 0");
  expect(pyops_model_save(model, "trained.safetensors") == 0, "save");
  expect(pyops_model_save(model, "absent/trained.safetensors") == PYOPS_WRONG_FILE, "no folder");
  pyops_model_free(model);
  pyops_model_free(NULL);
  if (failures == 0) puts("gradients right");
  return failures > 0;
}
