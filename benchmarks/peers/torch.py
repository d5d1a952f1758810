"""torch eager: autograd of the operator's formula, with create_graph for second order."""

from types import SimpleNamespace

import torch

COMPILED = False


def versions():
    return {"torch": torch.__version__}


def set_threads(count):
    torch.set_num_threads(count)
    torch.set_num_interop_threads(1)


def tensors(problem, device="cpu"):
    def moved(array):
        return torch.from_numpy(array).to(device)

    data = {name: moved(array) for name, array in problem.graph.items()}
    graph = SimpleNamespace(**data, **problem.numbers)
    inputs = [moved(array) for array in problem.inputs.values()]
    return graph, inputs, moved(problem.gy), [moved(array) for array in problem.cotangents]


def load(module, problem, device="cpu"):
    return eager(module.in_torch, *tensors(problem, device))


def eager(formula, graph, inputs, gy, cotangents):
    inputs = [tensor.requires_grad_() for tensor in inputs]
    gy_leaf = gy.clone().requires_grad_()

    def forward():
        with torch.no_grad():
            return (formula(graph, *inputs),)

    def backward():
        y = formula(graph, *inputs)
        return y, *torch.autograd.grad(y, inputs, gy)

    def double_backward():
        y = formula(graph, *inputs)
        first = torch.autograd.grad(y, inputs, gy_leaf, create_graph=True)
        second = torch.autograd.grad(first, [*inputs, gy_leaf], cotangents, materialize_grads=True)
        return y, *first, *second

    return {"forward": forward, "backward": backward, "double_backward": double_backward}


def arrays(module, case, results):
    return [tensor.detach().numpy() for tensor in results]
