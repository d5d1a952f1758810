"""Peak memory and time of a step of a MeshGraphNet processor, in a process for each side.

python -m benchmarks.mesh_memory [--layers 15] [--nodes 20000] [--degree 8] [--width 128]
                                 [--hidden 1] [--steps 3] [SIDE...]
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.options import positive
from benchmarks.report import table

HEAD = ["side", "peak", "of that before", "step", "peak / torch", "step / torch"]
PREAMBLE = """\
Forward and backward of all layers with gradients of features and parameters, float32. "Peak": the
most resident memory of the process, of which imports, parameters, edges and features take what is
in the next column."""


def plain(options: argparse.Namespace) -> Any:
    """Return the processor as users of PyTorch write it: joined features, index_add."""
    import torch

    width = options.width

    def network(inputs: int) -> Any:
        modules, size = [], inputs
        for _ in range(options.hidden):
            modules += [torch.nn.Linear(size, width), torch.nn.SiLU()]
            size = width
        return torch.nn.Sequential(
            *modules, torch.nn.Linear(size, width), torch.nn.LayerNorm(width)
        )

    class Processor(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.edges = torch.nn.ModuleList(network(3 * width) for _ in range(options.layers))
            self.nodes = torch.nn.ModuleList(network(2 * width) for _ in range(options.layers))

        def forward(self, x: Any, e: Any, index: Any) -> Any:
            src, dst = index
            for of_edges, of_nodes in zip(self.edges, self.nodes, strict=True):
                e = e + of_edges(torch.cat([e, x[src], x[dst]], dim=1))
                sums = torch.zeros_like(x).index_add(0, dst, e)
                x = x + of_nodes(torch.cat([sums, x], dim=1))
            return x

    return Processor()


def drop_in(segments: int) -> Callable[[argparse.Namespace], Any]:
    return lambda options: processor(options, segments)


def processor(options: argparse.Namespace, segments: int) -> Any:
    """Return the layer, of which the backward pass recomputes each of the segments."""
    import torch

    from pyops.torch.nn import MeshGraphNetProcessor

    return MeshGraphNetProcessor(
        options.layers,
        options.width,
        options.width,
        options.hidden,
        options.hidden,
        activation_fn=torch.nn.SiLU(),
        num_processor_checkpoint_segments=segments,
    )


SIDES: dict[str, Callable[[argparse.Namespace], Any]] = {
    "torch": plain,
    "pyops": drop_in(0),
    "pyops, 5 segments": drop_in(5),
}


def peak() -> float:
    """Return the most memory that the process has had, in MB."""
    with open("/proc/self/status") as status:
        (found,) = re.findall(r"VmHWM:\s*(\d+) kB", status.read())
    return int(found) * 1024 / 1e6


def worker(side: str, options: argparse.Namespace) -> dict[str, float]:
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = SIDES[side](options)
    edges = options.nodes * options.degree
    index = torch.stack(
        [torch.randint(options.nodes, (edges,)), torch.arange(options.nodes).repeat(options.degree)]
    )
    x = torch.randn(options.nodes, options.width, requires_grad=True)
    e = torch.randn(edges, options.width, requires_grad=True)
    before, seconds = peak(), []
    for _ in range(options.steps):
        start = time.perf_counter()
        model(x, e, index).square().mean().backward()
        seconds.append(time.perf_counter() - start)
        norm = float(x.grad.norm())
        x.grad = e.grad = None
        model.zero_grad()
    rest = seconds[1:] or seconds
    return {"peak": peak(), "before": before, "seconds": median(rest), "gradient": norm}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.mesh_memory")
    for name, value in {
        "layers": 15, "nodes": 20_000, "degree": 8, "width": 128, "hidden": 1, "steps": 3
    }.items():  # fmt: skip
        parser.add_argument(f"--{name}", type=positive, default=value)
    parser.add_argument("--worker", choices=SIDES)
    parser.add_argument("sides", nargs="*", default=[*SIDES])
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(worker(options.worker, options)))
        return
    found = {}
    for side in options.sides:
        words = [w for w in sys.argv[1:] if w not in options.sides]
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.mesh_memory", *words, "--worker", side],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"MALLOC_ARENA_MAX": "1"},
        )
        found[side] = json.loads(done.stdout)
    first = next(iter(found.values()))
    rows = [
        [
            side,
            f"{f['peak']:,.0f} MB",
            f"{f['before']:,.0f} MB",
            f"{f['seconds']:.2f} s",
            f"{f['peak'] / first['peak']:.3f}",
            f"{f['seconds'] / first['seconds']:.2f}",
        ]
        for side, f in found.items()
    ]
    print(PREAMBLE, "", table([HEAD, *rows]), sep="\n")


if __name__ == "__main__":
    main()
