"""pyops beside its peers on one CUDA device: `python -m benchmarks.cuda [OPERATOR ...]`.

Needs CuPy, and measures those of torch and jax that are installed for the device. Each phase
comprises those before it, as in training. Limits are measured in the same run.
"""

import importlib
import os
import statistics
import sys
import time
from types import SimpleNamespace

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import cupy
import numpy as np

import pyops
from benchmarks.cases import ATTENTION, FIRST_ORDER, PHASES, Case
from benchmarks.peers import pyops as ours
from benchmarks.problem import Problem, make, operator_module

CASES = (
    Case("gno_conv"),
    Case("gno_conv", nodes=20_000, phases=FIRST_ORDER),
    Case("kernel_conv", nodes=2000),
    Case("kernel_conv", nodes=2000, kernel="diagonal"),
    Case("gat", nodes=20_000, degree=25, heads=8, width=32),
    Case("gat", nodes=100_000, degree=25, heads=8, width=32, phases=FIRST_ORDER),
    *(
        Case(name, nodes=20_000, degree=25, heads=8, width=32)
        for name in ("gat_v2", "transformer_conv")
    ),
    Case("dimenet_aggregate", nodes=1000, degree=24),
    Case("dimenet_aggregate", nodes=10_000, degree=24, phases=FIRST_ORDER),
)
PRECISE = "gno_conv", "kernel_conv"
PEERS = "torch", "torch_compile", "jax"
SECONDS = 1.0


def seconds(call):
    """The median time of a call, launches included, over as many as fit in a second."""
    for _ in range(3):
        call()
    wait()
    start = time.perf_counter()
    call()
    wait()
    count = max(1, int(0.02 / (time.perf_counter() - start)))
    found, stop = [], time.perf_counter() + SECONDS
    while len(found) < 5 or time.perf_counter() < stop:
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        found.append((time.perf_counter() - start) / count)
    return statistics.median(found)


def wait():
    cupy.cuda.Device().synchronize()


def on_device(problem, **options):
    """The phases of pyops on CuPy arrays."""
    operator, inputs, cotangents, more = ours.prepare(operator_module(problem.case), problem)
    moved = [a.to_device() if isinstance(a, pyops.Graph) else cupy.asarray(a) for a in inputs]
    h, gy, options = [*map(cupy.asarray, cotangents)], cupy.asarray(problem.gy), options | more

    def forward():
        return (operator(*moved, **options),)

    def backward():
        return *forward(), operator.backward(*moved, gy, **options)

    def double_backward():
        return *backward(), operator.double_backward(*moved, gy, *h, **options)

    return {"forward": forward, "backward": backward, "double_backward": double_backward}


def peer(name, problem):
    """The phases of a peer, which finds its arrays on the device."""
    module = importlib.import_module(f"benchmarks.peers.{name}")
    if name != "jax":
        module.tensors = _tensors
    return module, module.load(operator_module(problem.case), problem)


def _tensors(problem):
    import torch

    def move(array):
        return torch.from_numpy(array).cuda()

    graph = SimpleNamespace(**{name: move(array) for name, array in problem.graph.items()})
    inputs, h = ([*map(move, some)] for some in (problem.inputs.values(), problem.cotangents))
    return graph, inputs, move(problem.gy), h


def difference(problem, phase, module, theirs, phases):
    """The largest difference between the answers, relative to the largest number of each."""
    operator = operator_module(problem.case)
    host = [
        tuple(None if a is None else a.get() for a in some)
        if isinstance(some, tuple)
        else some.get()
        for some in phases[phase]()
    ]
    answers = ours.arrays(operator, problem.case, host)
    results = theirs[phase]()
    if module.__name__.endswith("torch") or module.__name__.endswith("torch_compile"):
        results = [tensor.detach().cpu() for tensor in results]
    others = module.arrays(operator, problem.case, results)
    pairs = zip(answers, others, strict=True)
    return max(np.abs(a - b).max() / np.abs(b).max() for a, b in pairs)


def limits():
    """Copy bandwidth in both directions, and the rates of products of matrices."""
    x = cupy.ones(1 << 28, cupy.float32)
    y = cupy.empty_like(x)
    rate = 2 * x.nbytes / seconds(lambda: cupy.copyto(y, x))
    print(f"device copy: {rate / 1e12:.2f} TB/s")
    runtime = pyops.cuda._device.found().runtime
    for kind, precision in ("f", "highest"), ("f", "tf32x3"), ("f", "tf32"), ("d", "highest"):
        a, size = cupy.ones((8192, 8192), kind), 8192
        rate = 2 * size**3 / seconds(lambda a=a, p=precision: runtime.matmul(a, a, precision=p))
        print(f"product, {a.dtype} {precision}: {rate / 1e12:.1f} TFLOP/s")


def gathers(problem):
    """The time to gather and sum the rows of the sources, for operators that gather rows."""
    case = problem.case
    graph = pyops.Graph(problem.graph["src"], problem.graph["dst"], case.nodes, case.nodes)
    graph = graph.to_device()
    x = cupy.asarray(np.ones((case.nodes, max(1, case.heads) * case.width), case.dtype))
    return seconds(lambda: pyops.aggregate(graph, x))


def measure(problem: Problem):
    case = problem.case
    print(f"\n{case.title}, {case.nodes} nodes")
    if case.operator in ATTENTION:
        print(f"  one gather of the rows: {1e3 * gathers(problem):.3f} ms")
    phases = on_device(problem)
    mine = {}
    for phase in case.phases:
        mine[phase] = seconds(phases[phase])
        print(f"  {phase}: pyops {1e3 * mine[phase]:.3f} ms")
    for precision in ("tf32x3", "tf32") if case.operator in PRECISE else ():
        quick = on_device(problem, precision=precision)
        times = ", ".join(f"{p} {1e3 * seconds(quick[p]):.3f} ms" for p in case.phases)
        print(f"  precision={precision}: {times}")
    for name in PEERS:
        try:
            module, theirs = peer(name, problem)
            for phase in case.phases:
                apart = difference(problem, phase, module, theirs, phases)
                took = seconds(theirs[phase])
                print(
                    f"  {phase}: {name} {1e3 * took:.3f} ms, {took / mine[phase]:.1f} times ours, "
                    f"answers {apart:.1e} apart"
                )
        except Exception as error:  # a peer that is not there, or that has not enough memory
            print(f"  {name}: {type(error).__name__}: {str(error).splitlines()[0]}")
        cupy.get_default_memory_pool().free_all_blocks()


def main(names):
    assert all(set(case.phases) <= set(PHASES) for case in CASES)
    device = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    print(f"{device}, pyops {pyops.__version__}, CuPy {cupy.__version__}")
    limits()
    for case in CASES:
        if not names or case.operator in names:
            measure(make(case))


if __name__ == "__main__":
    main(sys.argv[1:])
