/* Runs a network that Python exported, and computes forces, without Python.

   program MODEL.pt2 INPUTS.pt OUTPUTS.pt

   INPUTS.pt is a dict of lists of tensors that torch.save wrote: "network" are the arguments of the
   network, "forces" are sources, destinations, positions, features, and the parameters of gno_conv.
   OUTPUTS.pt becomes a tuple: the result of the network, the energy and the forces. */
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

using at::Tensor;
using Tensors = std::vector<Tensor>;

/* Sums the features of neighbours, each times a matrix that depends on the edge's vector. */
Tensor gno_conv(const Tensor &src, const Tensor &dst, const Tensor &features, const Tensor &vectors,
                const Tensor &params, int64_t hidden, std::string_view activation) {
  using Signature = Tensor(const Tensor &, const Tensor &, const std::optional<Tensor> &,
                           c10::SymInt, c10::SymInt, c10::SymInt, const Tensor &, const Tensor &,
                           const Tensor &, int64_t, std::string_view);
  static auto function =
      c10::Dispatcher::singleton().findSchemaOrThrow("pyops::gno_conv", "").typed<Signature>();
  int64_t nodes = features.size(0), edges = src.size(0);
  return function.call(src, dst, std::nullopt, nodes, nodes, edges, features, vectors, params,
                       hidden, activation);
}

/* Returns the energy of points and the forces on them, the negative gradient. */
Tensors forces(const Tensors &given) {
  const Tensor &src = given[0], &dst = given[1], &features = given[3], &params = given[4];
  Tensor positions = given[2].detach().requires_grad_();
  Tensor vectors = positions.index_select(0, src) - positions.index_select(0, dst);
  Tensor energy = gno_conv(src, dst, features, vectors, params, 16, "gelu").sum();
  Tensor gradient = torch::autograd::grad({energy}, {positions})[0];
  return {energy.detach(), -gradient};
}

Tensors tensors(const c10::IValue &list) {
  Tensors found;
  for (const c10::IValue &value : list.toListRef()) found.push_back(value.toTensor());
  return found;
}

int main(int count, char **words) {
  if (count != 4) return 2;
  std::ifstream input(words[2], std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(input), {}};
  auto inputs = torch::jit::pickle_load(bytes).toGenericDict();

  torch::inductor::AOTIModelPackageLoader network(words[1]);
  Tensors outputs = network.run(tensors(inputs.at("network")));
  for (const Tensor &tensor : forces(tensors(inputs.at("forces")))) {
    outputs.push_back(tensor);
  }
  std::vector<c10::IValue> values(outputs.begin(), outputs.end());
  std::vector<char> saved = torch::jit::pickle_save(c10::ivalue::Tuple::create(values));
  std::ofstream(words[3], std::ios::binary).write(saved.data(), std::ssize(saved));
}
