"""One file per library: how it runs an operator's phases, and how to convert its arrays to NumPy.

A peer has `COMPILED` (its first call compiles), `versions()`, `set_threads(n)`, `load(operator,
problem)`, which returns one function per phase, and `arrays(operator, case, results)`, which
returns the results as NumPy arrays: y, the gradients in the order of the inputs, their gradients
likewise, and that of gy.
"""

from importlib import import_module
from typing import Any

NAMES = {
    "pyops": "pyops",
    "torch": "torch",
    "torch_compile": "torch.compile",
    "jax": "jax.jit",
    "neuraloperator": "neuraloperator",
    "dgl": "DGL",
}
PEERS = tuple(NAMES)
FORMULAS = {peer: f"in_{peer}" for peer in PEERS} | {"torch_compile": "in_torch"}
FRONT_ENDS = {
    "pyops_torch": ("torch", "torch"),
    "pyops_torch_compile": ("torch", "torch_compile"),
    "pyops_jax": ("jax", "jax"),
}
"""pyops through a framework, run as that peer is."""
FORMULAS |= dict.fromkeys(FRONT_ENDS, "in_pyops")


def peer_module(name: str) -> Any:
    if name in FRONT_ENDS:
        return import_module("benchmarks.peers.front_ends").FrontEnd(*FRONT_ENDS[name])
    return import_module(f"benchmarks.peers.{name}")
