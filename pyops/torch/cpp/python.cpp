/* Kernels for a process where pyops.torch has registered the operators. They compute calls of plain
   tensors with few edges, and record them for reverse mode; all other calls go on to the functions
   in Python. */
#include <ATen/core/LegacyTypeDispatch.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include "autograd.h"
#include "call.h"

namespace pyops_torch {

/* `limits` of _call/threads.py. */
static const int32_t *limits;

int32_t wanted_threads() {
  int32_t chosen = limits[0], available = pyops_available_threads();
  if (chosen) return available >= limits[1] ? chosen : std::min(chosen, available);
  return std::min({available, pyops_available_processors(), limits[2]});
}

void raise_interrupt(const std::string &) {
  pybind11::gil_scoped_acquire gil;
  throw pybind11::error_already_set(); /* by a signal handler */
}

/* MemoryError of Python. */
struct NoMemory : std::bad_alloc {
  std::string message;
  explicit NoMemory(std::string text) : message(std::move(text)) {}
  const char *what() const noexcept override { return message.c_str(); }
};

void raise_no_memory(const std::string &message) { throw NoMemory(message); }

namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

/* Indices are compared with those of packed graphs in each call, and packed anew besides in Python:
   with more entries than these, that costs more than the call of Python. */
constexpr int64_t most_entries = 1 << 14, most_nodes = 1 << 17;

/* Whether a call is of plain tensors, whose memory holds the values, and no mode sees it. */
bool is_plain(const Phase &phase, DispatchKeySet keys, const Stack &stack, size_t count) {
  const DispatchKeySet plain({DispatchKey::CPU, DispatchKey::ADInplaceOrView,
                              DispatchKey::AutogradCPU, DispatchKey::AutocastCPU,
                              DispatchKey::BackendSelect});
  if (!plain.isSupersetOf(keys)) return false;
  for (size_t i = stack.size() - count; i < stack.size(); i++) {
    if (!stack[i].isTensor()) continue;
    const Tensor &tensor = stack[i].toTensor();
    auto type = tensor.scalar_type();
    if (!plain.isSupersetOf(tensor.key_set()) || type == at::kHalf || type == at::kBFloat16) {
      return false;
    }
  }
  if (!phase.op->has_graph) return true;
  const IValue *graph = &stack[stack.size() - count];
  return graph[0].toTensor().numel() <= most_entries && graph[3].isInt() && graph[4].isInt() &&
         graph[3].toInt() <= most_nodes && graph[4].toInt() <= most_nodes;
}

bool has_tangents(const Stack &stack, size_t count) {
  return std::any_of(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end(),
                     [](const IValue &value) {
                       return value.isTensor() && value.toTensor()._fw_grad(0).defined();
                     });
}

void compute(const OperatorHandle &handle, DispatchKeySet keys, Stack *stack) {
  const Phase &phase = phase_of(handle.schema().name());
  /* That for all devices is found with no device at all. */
  if (!is_plain(phase, keys, *stack, handle.schema().arguments().size())) {
    return handle.redispatchBoxed(DispatchKeySet(), stack);
  }
  push(phase, stack, Call(phase, split(phase, *stack)).run());
}

void record(const OperatorHandle &handle, DispatchKeySet keys, Stack *stack) {
  const Phase &phase = phase_of(handle.schema().name());
  size_t count = handle.schema().arguments().size();
  if (!is_plain(phase, keys, *stack, count) || has_tangents(*stack, count)) {
    /* That for autograd on all devices is found as that of another device. */
    keys = keys & c10::after_autograd_keyset;
    return handle.redispatchBoxed(keys | DispatchKeySet(DispatchKey::AutogradOther), stack);
  }
  differentiate(handle, keys, stack);
}

}  // namespace

/* Registers the kernels, once; returns the message of an error or NULL. */
extern "C" __attribute__((visibility("default"))) const char *pyops_torch_register(
    const int32_t *thread_limits) {
  using torch::CppFunction;
  static std::string message;
  static std::unique_ptr<torch::Library> library;
  limits = thread_limits;
  try {
    library = std::make_unique<torch::Library>(torch::Library::IMPL, "pyops", std::nullopt,
                                               __FILE__, __LINE__);
    for (const Phase &phase : phases) {
      const char *name = phase.name + std::strlen("pyops::");
      library->impl(
          name, torch::dispatch(DispatchKey::CPU, CppFunction::makeFromBoxedFunction<&compute>()));
      library->impl(name, torch::dispatch(DispatchKey::AutogradCPU,
                                          CppFunction::makeFromBoxedFunction<&record>()));
    }
  } catch (const std::exception &error) {
    library.reset();
    message = error.what();
    return message.c_str();
  }
  return nullptr;
}

}  // namespace pyops_torch
