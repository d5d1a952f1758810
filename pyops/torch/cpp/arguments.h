/* Arguments of a registered function on the stack of the dispatcher. */
#pragma once
#include <ATen/core/stack.h>
#include <unordered_map>

#include "messages.h"
#include "tables.h"

namespace pyops_torch {

using c10::IValue;
using torch::jit::Stack;

/* Arguments of a call, as the dispatcher passes them. */
struct Arguments {
  std::vector<IValue> graph, options; /* row numbers follow the options */
  std::vector<Tensor> tensors; /* inputs, gy, tangents or cotangents; undefined if absent */
  std::vector<bool> wanted;
};

size_t tensor_count(const Phase &phase) {
  size_t inputs = phase.op->inputs.size();
  switch (phase.step) {
    case Step::BACKWARD: return inputs + 1;
    case Step::JVP: return 2 * inputs;
    case Step::DOUBLE_BACKWARD: return 2 * inputs + 1;
    default: return inputs;
  }
}

bool has_wanted(const Phase &phase) {
  return phase.step == Step::BACKWARD || phase.step == Step::DOUBLE_BACKWARD;
}

Arguments split(const Phase &phase, const Stack &stack) {
  const Operator &op = *phase.op;
  size_t first = op.has_graph ? 6 : 0, tensors = tensor_count(phase);
  size_t options = op.options.size() + op.indexed.size();
  size_t count = first + tensors + options + has_wanted(phase);
  auto next = stack.end() - static_cast<std::ptrdiff_t>(count);
  Arguments found;
  found.graph.assign(next, next + static_cast<std::ptrdiff_t>(first));
  next += static_cast<std::ptrdiff_t>(first);
  for (size_t i = 0; i < tensors; i++, next++) {
    found.tensors.push_back(next->isNone() ? Tensor() : next->toTensor());
  }
  found.options.assign(next, next + static_cast<std::ptrdiff_t>(options));
  if (has_wanted(phase)) {
    for (bool flag : stack.back().toBoolList()) found.wanted.push_back(flag);
  }
  return found;
}

Stack join(const Phase &phase, const Arguments &arguments) {
  Stack stack(arguments.graph);
  for (const Tensor &tensor : arguments.tensors) {
    stack.push_back(tensor.defined() ? IValue(tensor) : IValue());
  }
  stack.insert(stack.end(), arguments.options.begin(), arguments.options.end());
  if (has_wanted(phase)) {
    c10::List<bool> wanted;
    for (bool flag : arguments.wanted) wanted.push_back(flag);
    stack.emplace_back(wanted);
  }
  return stack;
}

const Phase &phase_of(const std::string &name) {
  static const auto *known = [] {
    auto *table = new std::unordered_map<std::string, const Phase *>;
    for (const Phase &phase : phases) (*table)[phase.name] = &phase;
    return table;
  }();
  return *known->at(name);
}

const Phase &phase_of(const Operator &op, Step step) {
  return *std::find_if(std::begin(phases), std::end(phases),
                       [&](const Phase &phase) { return phase.op == &op && phase.step == step; });
}

void push(const Phase &phase, Stack *stack, std::vector<Tensor> results) {
  torch::jit::drop(*stack, phase.op->options.size() + phase.op->indexed.size() +
                               tensor_count(phase) + has_wanted(phase) +
                               (phase.op->has_graph ? 6 : 0));
  if (has_wanted(phase)) stack->emplace_back(c10::List<Tensor>(std::move(results)));
  else stack->emplace_back(std::move(results[0]));
}

}  // namespace pyops_torch
