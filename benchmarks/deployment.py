"""Trained networks in programs without Python: time of a call and size of what is shipped.

Compares pyops_models, called by the functions of pyops.h, with PyTorch as it is trained and with
what programs in C++ run by libtorch: TorchScript and a package of AOTInductor. All run in one
process, in turn; Python only starts them.

    OMP_NUM_THREADS=1 python -m benchmarks.deployment --json docs/benchmarks/deployment.json
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import pyops
import pyops.__main__
import pyops.torch.cpp
from benchmarks.machine import describe
from benchmarks.options import positive
from pyops.torch import nn

BASE = "ld-linux", "libc.so", "libm.so", "libdl.so", "librt.so", "libpthread.so"
"""Libraries of every system, which are not shipped."""
CUTOFF = 4.0
Inputs = dict[str, torch.Tensor]


class Darcy(torch.nn.Module):
    """A graph neural operator from the coefficient of Darcy flow to its pressure."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.lift, self.project = torch.nn.Linear(3, width), torch.nn.Linear(width, 1)
        self.layers = torch.nn.ModuleList(
            nn.NNConv(
                width,
                width,
                torch.nn.Sequential(
                    torch.nn.Linear(6, width), torch.nn.GELU(), torch.nn.Linear(width, width**2)
                ),
                aggr="mean",
            )
            for _ in range(3)
        )

    def forward(
        self, x: torch.Tensor, edge_index: torch.Tensor, coords: torch.Tensor
    ) -> torch.Tensor:
        h = self.lift(x)
        for layer in self.layers:
            h = torch.nn.functional.gelu(layer(h, edge_index, coords))
        return self.project(h)


class Attention(torch.nn.Module):
    """Two layers of graph attention, each of four heads."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GATConv(16, 16, heads=4), nn.GATConv(64, 16, heads=4)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        return self.second(torch.nn.functional.elu(self.first(x, edge_index)), edge_index)


def models() -> dict[str, tuple[torch.nn.Module, Inputs]]:
    """Return the networks and their inputs by name."""
    edges = torch.randint(0, 1000, (2, 8000))
    many = torch.randint(0, 5000, (2, 50000))
    dimenet = nn.DimeNetPlusPlus(
        64, 1, 3, 32, 8, 64, 7, 6, cutoff=CUTOFF, output_initializer="glorot_orthogonal"
    )
    return {
        "Darcy flow, 1,000 nodes, 8,000 edges": (
            Darcy(),
            {"x": torch.rand(1000, 3), "edge_index": edges, "coords": torch.rand(8000, 6)},
        ),
        "two `GATConv`, 5,000 nodes, 50,000 edges": (
            Attention(),
            {"x": torch.rand(5000, 16), "edge_index": many},
        ),
        "`DimeNetPlusPlus`, 60 atoms, with the search": (
            dimenet,
            {"z": torch.randint(1, 9, (60,)), "pos": 8 * torch.rand(60, 3)},
        ),
    }


class InC:
    """A model of a file, called by the functions of pyops.h."""

    def __init__(self, path: Path, inputs: Inputs) -> None:
        self._library = ctypes.CDLL(pyops.__main__.library())
        self._library.pyops_model_new.restype = ctypes.c_void_p
        self._model = ctypes.c_void_p(self._library.pyops_model_new())
        self._inputs = {name: one.numpy() for name, one in inputs.items()}
        self._call("load", str(path).encode(), ctypes.c_int32(0))
        for name, value in self._inputs.items():
            if name == "edge_index":
                self._set_graph(name, value, len(self._inputs["x"]))
            elif value.dtype == np.int64:
                self._call("set_index", name.encode(), ctypes.c_int64(len(value)), _address(value))
            else:
                sizes = map(ctypes.c_int64, value.shape)
                self._call("set_real_r4", name.encode(), *sizes, _address(value))

    def _call(self, name: str, *given: object) -> None:
        if getattr(self._library, f"pyops_model_{name}")(self._model, *given) != 0:
            text = ctypes.create_string_buffer(500)
            self._library.pyops_model_message(self._model, ctypes.c_int64(500), text)
            raise RuntimeError(text.value.decode())

    def _set_graph(self, name: str, edges: np.ndarray, nodes: int) -> None:
        sizes = map(ctypes.c_int64, (nodes, nodes, edges.shape[1]))
        ends = (_address(np.ascontiguousarray(row)) for row in edges)
        self._call("set_graph", name.encode(), *sizes, *ends)

    def __call__(self) -> None:
        if "pos" in self._inputs:
            pos = self._inputs["pos"]
            graph = pyops.radius_graph(pos, CUTOFF)[0]
            self._set_graph("graph", np.stack([graph.src, graph.dst]).astype(np.int64), len(pos))
        self._call("apply")

    def result(self, shape: tuple[int, ...]) -> np.ndarray:
        found = np.empty(shape, np.float32)
        self._call("get_r4", b"output:0", _address(found))
        return found


def _megabytes(*paths: Path) -> float:
    return round(sum(path.stat().st_size for path in paths) / 1e6, 3)


def _address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def scripted(net: torch.nn.Module, given: list[torch.Tensor], folder: Path) -> tuple[object, Path]:
    """Return a function of TorchScript and its file."""
    path = folder / "script.pt"
    torch.jit.trace(net, tuple(given), check_trace=False).save(str(path))
    return torch.jit.load(str(path)), path


def compiled(net: torch.nn.Module, given: list[torch.Tensor], folder: Path) -> tuple[object, Path]:
    """Return a function of AOTInductor and its package."""
    path = folder / "model.pt2"
    program = torch.export.export(net, tuple(given))
    torch._inductor.aoti_compile_and_package(program, package_path=str(path))
    return torch._inductor.aoti_load_package(str(path)), path


def libraries(*paths: object) -> float:
    """Return the megabytes of shared libraries and those that they load."""
    found = {Path(str(path)).resolve() for path in paths}
    for path in [*found]:
        for line in subprocess.check_output(["ldd", path], text=True).splitlines():
            name, _, rest = line.strip().partition(" => ")
            if rest.startswith("/") and not name.startswith(BASE):
                found.add(Path(rest.split()[0]).resolve())
    return _megabytes(*found)


def alternated(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median processor time of a call in ms, all called in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 3):
        for name, call in calls.items():
            start = time.thread_time()
            call()
            if turn >= 3:
                times[name].append(time.thread_time() - start)
    return {name: 1e3 * float(np.median(own)) for name, own in times.items()}


def measure(net: torch.nn.Module, inputs: Inputs, rounds: int) -> dict[str, dict[str, float]]:
    """Return times and sizes of the files of a model by route."""
    net, given = net.eval(), [*inputs.values()]
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        folder = Path(name)
        path = folder / "model.safetensors"
        pyops.models.save(net, path, inputs)
        own = InC(path, inputs)
        expected = net(*given)
        own()
        np.testing.assert_allclose(own.result(expected.shape), expected, rtol=0, atol=1e-3)
        calls: dict[str, Callable[[], object]] = {"pyops_models": own, "eager": lambda: net(*given)}
        files = {"pyops_models": path, "eager": path}
        for route, make in ("TorchScript", scripted), ("AOTInductor", compiled):
            try:
                function, files[route] = make(net, given, folder)
                torch.testing.assert_close(function(*given), expected, rtol=0, atol=1e-3)
            except Exception as error:  # what cannot be exported has no column
                print(f"{route}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
                files.pop(route, None)
                continue
            calls[route] = lambda function=function: function(*given)
        times = alternated(calls, rounds)
        return {
            route: {"ms": round(times[route], 3), "MB": _megabytes(files[route])} for route in times
        }


def shipped(folder: Path) -> dict[str, float]:
    """Return the megabytes beside the files of models."""
    package = Path(torch.__file__).parent
    whole = _megabytes(*(path for path in package.rglob("*") if path.is_file()))
    libtorch = libraries(package / "lib" / "libtorch.so", pyops.torch.cpp.build(folder))
    return {
        "pyops_models": libraries(pyops.__main__.library()),
        "eager": round(whole + libraries(pyops.__main__.library()), 3),
        "TorchScript": libtorch,
        "AOTInductor": libtorch,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=positive, default=51)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        sys.exit("benchmarks.deployment: OMP_NUM_THREADS: expected 1")
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    found: dict[str, object] = {"machine": describe()}
    with tempfile.TemporaryDirectory() as folder:
        found["MB beside the model"] = shipped(Path(folder))
    for name, (net, inputs) in models().items():
        found[name] = measure(net, inputs, options.rounds)
        print(name, json.dumps(found[name]), flush=True)
    text = json.dumps(found, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
