/* Registers the operators of pyops with PyTorch's dispatcher, for programs without Python. One
   function reads the arguments of any operator and phase by its tables, which are generated from
   the declarations; it makes all checks that Python makes. The headers here are parts of this one
   source, as those of PyTorch take longer to compile than all of it. */
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "autograd.h"
#include "call.h"

namespace pyops_torch {

int32_t wanted_threads() { return std::min(at::get_num_threads(), pyops_available_threads()); }

void raise_interrupt(const std::string &caller) { TORCH_CHECK(false, caller, ": interrupted"); }

void raise_no_memory(const std::string &message) {
  TORCH_CHECK_WITH(OutOfMemoryError, false, message);
}

namespace {

void compute(const OperatorHandle &handle, Stack *stack) {
  const Phase &phase = phase_of(handle.schema().name());
  push(phase, stack, Call(phase, split(phase, *stack)).run());
}

/* Calls a function that torch.jit.trace recorded with tensors for integers. */
void untrace(const OperatorHandle &handle, Stack *stack) {
  std::string name = handle.schema().name();
  name.resize(name.size() - std::strlen("_traced"));
  auto called = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "");
  const auto &arguments = called.schema().arguments();
  size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); i++) {
    IValue &value = (*stack)[first + i];
    auto kind = arguments[i].real_type()->kind();
    bool is_integer = kind == c10::TypeKind::IntType || kind == c10::TypeKind::SymIntType;
    if (is_integer && value.isTensor()) value = value.toTensor().item().toLong();
  }
  called.callBoxed(stack);
}

Tensor refuse(const Tensor &, const Tensor &, c10::string_view what) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, std::string(what));
}

std::unique_ptr<torch::Library> register_operators() {
  using torch::CppFunction;
  if (c10::Dispatcher::singleton().findSchema({"pyops::beyond", ""})) {
    TORCH_WARN(
        "libpyops_torch: expected a program without Python, got one where pyops.torch has "
        "registered the operators: those are used");
    return nullptr;
  }
  auto library = std::make_unique<torch::Library>(torch::Library::DEF, "pyops", std::nullopt,
                                                  __FILE__, __LINE__);
  for (const Phase &phase : phases) {
    const std::vector<at::Tag> tags(phase.op->has_graph, at::Tag::cudagraph_unsafe);
    const char *name = phase.name + std::strlen("pyops::");
    library->def(phase.schema, tags);
    library->impl(name, torch::dispatch(c10::DispatchKey::CPU,
                                        CppFunction::makeFromBoxedFunction<&compute>()));
    library->impl(name, torch::dispatch(c10::DispatchKey::Autograd,
                                        CppFunction::makeFromBoxedFunction<&differentiate>()));
    if (!phase.traced) continue;
    library->def(phase.traced);
    library->impl((std::string(name) + "_traced").c_str(),
                  torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd,
                                  CppFunction::makeFromBoxedFunction<&untrace>()));
  }
  library->def("beyond(Tensor like, Tensor cotangent, str what) -> Tensor");
  library->impl("beyond", torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &refuse));
  return library;
}

const std::unique_ptr<torch::Library> registered = register_operators();

}  // namespace
}  // namespace pyops_torch
