"""Sides of a comparison: pyops on CuPy's arrays, and peers with theirs on the same device.

A side has `phases`, a function each; `wait(results)`; `peak(call)`, bytes or None;
`answers(phase)`, the results of one call as NumPy arrays; `close()`, which frees everything.
"""

import gc
import importlib
import os

import cupy
import numpy as np

import pyops
from benchmarks.cuda import device
from benchmarks.peers import pyops as ours
from benchmarks.problem import operator_module

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
TORCH, JAX = "cuda", "gpu"
"""Names of the device in these libraries."""


class Pyops:
    wait, peak = staticmethod(device.wait), staticmethod(device.peak)

    def __init__(self, problem, half=None, **options):
        if half == "bfloat16":
            import ml_dtypes  # noqa: F401  # adds the type to NumPy
        self.case, self.operator = problem.case, operator_module(problem.case)
        operator, inputs, cotangents, more = ours.prepare(self.operator, problem)
        graphs = [a.to_device() for a in inputs if isinstance(a, pyops.Graph)]
        signature, kind = operator.signature, np.dtype(half or problem.gy.dtype)

        def moved(arrays):
            named = zip(signature.inputs, arrays, strict=False)
            return [cupy.asarray(a.astype(kind) if n in signature.half else a) for n, a in named]

        given = [*graphs, *moved(inputs[len(graphs) :])]
        h, gy, options = moved(cotangents), cupy.asarray(problem.gy.astype(kind)), options | more

        def forward():
            return (operator(*given, **options),)

        def backward():
            return *forward(), operator.backward(*given, gy, **options)

        def double_backward():
            return *backward(), operator.double_backward(*given, gy, *h, **options)

        self.phases = {
            "forward": forward,
            "backward": backward,
            "double_backward": double_backward,
        }

    def answers(self, phase):
        def moved(some):
            if isinstance(some, tuple):
                return tuple(None if a is None else a.get() for a in some)
            return some.get()

        return ours.arrays(self.operator, self.case, [*map(moved, self.phases[phase]())])

    def close(self):
        self.phases = {}
        gc.collect()
        device.free()


class Torch:
    """Eager, or with each phase compiled."""

    def __init__(self, problem, name="torch"):
        import torch

        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        self.torch, self.case = torch, problem.case
        self.module = importlib.import_module(f"benchmarks.peers.{name}")
        self.operator = operator_module(problem.case)
        self.phases = self.module.load(self.operator, problem, device=TORCH)

    def wait(self, results):
        self.torch.cuda.synchronize()

    def peak(self, call):
        cuda = self.torch.cuda
        cuda.reset_peak_memory_stats()
        before = cuda.memory_allocated()
        call()
        return cuda.max_memory_allocated() - before

    def answers(self, phase):
        results = [tensor.detach().cpu() for tensor in self.phases[phase]()]
        return self.module.arrays(self.operator, self.case, results)

    def close(self):
        self.phases = {}
        self.torch._dynamo.reset()
        gc.collect()
        self.torch.cuda.empty_cache()


class Jax:
    def __init__(self, problem):
        import jax

        if jax.default_backend() != JAX:
            raise RuntimeError(f"JAX sees no device, but {jax.default_backend()}")
        jax.config.update("jax_default_matmul_precision", "highest")
        self.jax, self.case = jax, problem.case
        self.module = importlib.import_module("benchmarks.peers.jax")
        self.operator = operator_module(problem.case)
        if not hasattr(self.operator, "in_jax"):
            raise NotImplementedError("there is no version of this operator in JAX")
        self.phases = self.module.load(self.operator, problem, wait=lambda results: results)

    def wait(self, results):
        self.jax.block_until_ready(results)

    def peak(self, call):
        """Return the memory above the previous peak, which JAX never resets."""
        here = self.jax.devices()[0]
        before = here.memory_stats()
        self.wait(call())
        after = here.memory_stats()
        if not before or not after or after["peak_bytes_in_use"] <= before["peak_bytes_in_use"]:
            return None
        return after["peak_bytes_in_use"] - before["bytes_in_use"]

    def answers(self, phase):
        return self.module.arrays(self.operator, self.case, self.phases[phase]())

    def close(self):
        self.phases = {}
        self.jax.clear_caches()
        gc.collect()


def side(name, problem):
    """Return a peer; raise if its library or that library's device is missing."""
    return Jax(problem) if name == "jax" else Torch(problem, name)


def versions():
    """Return the versions of the peers, and their settings of matrix products."""
    found = {}
    for name, setting in (
        ("torch", "allow_tf32 = False for products and cuDNN"),
        ("jax", "jax_default_matmul_precision = highest"),
    ):
        try:
            version = importlib.import_module(name).__version__
            found[name] = f"{version}, {setting}"
        except ImportError as error:
            found[name] = said(error)
    return found


def said(error):
    """Return an error in one line."""
    return f"{type(error).__name__}: {(str(error).splitlines() or ['nothing said'])[0]}"


def difference(got, expected):
    """Return the largest difference between results, relative to the largest element of each.

    Results of cancellation are compared with a hundredth of the largest of the others.
    """
    sizes = [float(np.abs(b).max(initial=0)) for b in expected]
    least = max(0.01 * max(sizes), np.finfo(np.float32).tiny)
    pairs = zip(got, expected, sizes, strict=True)
    return float(max(np.abs(a - b).max(initial=0) / max(size, least) for a, b, size in pairs))
