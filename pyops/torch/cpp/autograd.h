/* Nodes of autograd: each phase is the derivative of the previous one. */
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include "arguments.h"

namespace pyops_torch {

using c10::OperatorHandle;

/* Calls a phase through the dispatcher. */
std::vector<Tensor> dispatch(const Phase &phase, const Arguments &arguments) {
  static auto &dispatcher = c10::Dispatcher::singleton();
  Stack stack = join(phase, arguments);
  dispatcher.findSchemaOrThrow(phase.name, "").callBoxed(stack);
  if (has_wanted(phase)) return stack.back().toTensorVector();
  return {stack.back().toTensor()};
}

/* What a node of autograd keeps of a call beside its tensors. */
struct Recorded : torch::CustomClassHolder {
  const Phase *phase;
  Arguments arguments; /* without tensors */
  std::vector<size_t> places; /* of the tensors given */
};

/* Node of autograd for a phase, whose derivatives are calls of the next ones. */
struct Node : torch::autograd::Function<Node> {
  using Context = torch::autograd::AutogradContext;

  static std::vector<Tensor> forward(Context *context, const c10::intrusive_ptr<Recorded> &recorded,
                                     at::TensorList given) {
    context->saved_data["recorded"] = IValue::make_capsule(recorded);
    context->save_for_backward(given.vec());
    context->set_materialize_grads(false);
    at::AutoDispatchBelowADInplaceOrView guard;
    return dispatch(*recorded->phase, with(*recorded, given.vec()));
  }

  static std::vector<Tensor> backward(Context *context, const std::vector<Tensor> &cotangents) {
    auto recorded =
        c10::static_intrusive_pointer_cast<Recorded>(context->saved_data["recorded"].toCapsule());
    TORCH_CHECK_NOT_IMPLEMENTED(!torch::jit::tracer::isTracing(), "pyops.torch.",
                                recorded->phase->op->name,
                                ": derivatives inside what torch.jit.trace records: trace the "
                                "value and differentiate the traced function");
    std::vector<bool> needed(tensor_count(*recorded->phase));
    for (size_t i = 0; i < recorded->places.size(); i++) {
      needed[recorded->places[i]] = context->needs_input_grad(i);
    }
    Arguments arguments = with(*recorded, context->get_saved_variables());
    std::vector<Tensor> found(needed.size());
    bool some = std::any_of(cotangents.begin(), cotangents.end(),
                            [](const Tensor &tensor) { return tensor.defined(); });
    if (some) derive(*recorded->phase, arguments, cotangents, needed, found);
    std::vector<Tensor> gradients(1);
    for (size_t place : recorded->places) gradients.push_back(found[place]);
    return gradients;
  }

 private:
  static Arguments with(const Recorded &recorded, const std::vector<Tensor> &given) {
    Arguments arguments = recorded.arguments;
    arguments.tensors.resize(tensor_count(*recorded.phase));
    for (size_t i = 0; i < given.size(); i++) arguments.tensors[recorded.places[i]] = given[i];
    return arguments;
  }

  using Flags = std::vector<bool>;

  static void derive(const Phase &phase, const Arguments &arguments,
                     const std::vector<Tensor> &cotangents, const Flags &needed,
                     std::vector<Tensor> &found) {
    const std::vector<Tensor> &tensors = arguments.tensors;
    auto count = static_cast<std::ptrdiff_t>(phase.op->inputs.size());
    std::vector<Tensor> inputs(tensors.begin(), tensors.begin() + count);
    Flags by_inputs(needed.begin(), needed.begin() + count);
    switch (phase.step) {
      case Step::FORWARD:
        inputs.push_back(cotangents[0]);
        return call(phase, Step::BACKWARD, arguments, inputs, by_inputs, found, 0);
      case Step::BACKWARD: {
        std::vector<Tensor> all = tensors;
        size_t next = 0;
        for (bool wanted : arguments.wanted) all.push_back(wanted ? cotangents[next++] : Tensor());
        return call(phase, Step::DOUBLE_BACKWARD, arguments, all, needed, found, 0);
      }
      case Step::JVP: {
        inputs.push_back(cotangents[0]);
        std::vector<Tensor> all = inputs;
        all.insert(all.end(), tensors.begin() + count, tensors.end());
        Flags second = by_inputs, by_tangents(needed.begin() + count, needed.end());
        second.push_back(false);
        call(phase, Step::DOUBLE_BACKWARD, arguments, all, second, found, 0);
        return call(phase, Step::BACKWARD, arguments, inputs, by_tangents, found,
                    phase.op->inputs.size());
      }
      default:
        TORCH_CHECK_NOT_IMPLEMENTED(false, "pyops.torch.", phase.op->name,
                                    ": third derivatives: pyops ends at the second");
    }
  }

  /* Calls a phase for the requested results and stores them from a place on. */
  static void call(const Phase &phase, Step step, const Arguments &arguments,
                   const std::vector<Tensor> &tensors, const Flags &wanted,
                   std::vector<Tensor> &found, size_t place) {
    if (std::none_of(wanted.begin(), wanted.end(), [](bool flag) { return flag; })) return;
    Arguments next = {arguments.graph, arguments.options, tensors, wanted};
    std::vector<Tensor> results = dispatch(phase_of(*phase.op, step), next);
    size_t used = 0;
    for (size_t i = 0; i < wanted.size(); i++) {
      if (wanted[i]) found[place + i] = results[used++];
    }
  }
};

void differentiate(const OperatorHandle &handle, c10::DispatchKeySet keys, Stack *stack) {
  const Phase &phase = phase_of(handle.schema().name());
  Arguments arguments = split(phase, *stack);
  std::vector<Tensor> given;
  bool tracks = false;
  auto recorded = c10::make_intrusive<Recorded>();
  for (size_t i = 0; i < arguments.tensors.size(); i++) {
    const Tensor &tensor = arguments.tensors[i];
    if (!tensor.defined()) continue;
    TORCH_CHECK_NOT_IMPLEMENTED(!tensor._fw_grad(0).defined(), phase.name,
                                ": forward mode: expected tensors without tangents; pyops::",
                                phase.op->name, "_jvp takes them as arguments");
    given.push_back(tensor);
    recorded->places.push_back(i);
    tracks = tracks || tensor.requires_grad();
  }
  if (!tracks || !at::GradMode::is_enabled() || phase.step == Step::ATTENTION) {
    at::AutoDispatchBelowADInplaceOrView guard;
    return handle.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }
  arguments.tensors.clear();
  recorded->phase = &phase;
  recorded->arguments = std::move(arguments);
  push(phase, stack, Node::apply(recorded, at::TensorList(given)));
}

}  // namespace pyops_torch
