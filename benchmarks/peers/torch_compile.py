"""torch.compile: each phase one compiled graph.

Compiling forward alone and leaving backward to autograd is slower, and has no second order.
"""

import torch
from torch.func import vjp

from benchmarks.peers.torch import arrays, set_threads, tensors, versions

__all__ = ["arrays", "set_threads", "versions"]
COMPILED = True


def load(module, problem, device="cpu"):
    graph, inputs, gy, cotangents = tensors(problem, device)
    torch._dynamo.reset()

    def forward(*inputs):
        return (module.in_torch(graph, *inputs),)

    def backward(gy, *inputs):
        (y,), pull = vjp(forward, *inputs)
        return y, *pull((gy,))

    def double_backward(gy, cotangents, *inputs):
        def first(gy, *inputs):
            y, *gradients = backward(gy, *inputs)
            return tuple(gradients), y

        gradients, pull, y = vjp(first, gy, *inputs, has_aux=True)
        dgy, *second = pull(tuple(cotangents))
        return y, *gradients, *second, dgy

    def compiled(phase, *arguments):
        call = torch.compile(phase, dynamic=False, fullgraph=True)

        def run():
            with torch.no_grad():
                return call(*arguments)

        return run

    return {
        "forward": compiled(forward, *inputs),
        "backward": compiled(backward, gy, *inputs),
        "double_backward": compiled(double_backward, gy, cotangents, *inputs),
    }
