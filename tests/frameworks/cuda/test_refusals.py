"""The device front end refuses invalid arguments by name, and says what a machine lacks."""

import sys
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest

import pyops
from pyops import blocks
from pyops.cuda import _device, _dispatch

from ...support.compare import assert_same
from . import on_device as ops
from .host import COMPILER
from .platform import to_device
from .test_dispatch import FEATURES, GRAPH, KAPPA, call
from .test_dispatch import platform as platform

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def host(array):
    """Return an array that `call` leaves on the host."""
    return array.view(np.memmap)


REFUSED = {
    "array on the host": (
        lambda: call(kappa=host(KAPPA)),
        TypeError,
        "gno_aggregate: kappa: expected an array on the device like the other arguments, "
        "got numpy.memmap",
    ),
    "a list": (
        lambda: call(features=[[1.0]]),
        TypeError,
        "gno_aggregate: features: expected an array on the device like the other arguments, "
        "got list",
    ),
    "graph on the host": (
        lambda: pyops.gno_aggregate(GRAPH, to_device(FEATURES), to_device(KAPPA)),
        TypeError,
        "gno_aggregate: graph: expected a graph on the device like the arrays, "
        "graph.to_device(), got one on the host",
    ),
    "arrays on the host": (
        lambda: pyops.gno_aggregate(GRAPH.to_device(), FEATURES, KAPPA),
        TypeError,
        "gno_aggregate: features: expected an array on the device like the other arguments, "
        "got numpy.ndarray",
    ),
    "cotangent on the host": (
        lambda: pyops.gno_aggregate.double_backward(
            GRAPH.to_device(), to_device(FEATURES), to_device(KAPPA), FEATURES, None, None
        ),
        TypeError,
        "gno_aggregate.double_backward: gy: expected an array on the device like the other "
        "arguments, got numpy.ndarray",
    ),
    "two devices": (
        lambda: call(kappa=to_device(KAPPA, 1)),
        ValueError,
        "gno_aggregate: kappa: expected device 0 like graph, got device 1",
    ),
    "two devices without a graph": (
        lambda: pyops.add(to_device(KAPPA), to_device(KAPPA, 1)),
        ValueError,
        "add: x2: expected device 0 like x1, got device 1",
    ),
    "graph on another device": (
        lambda: call(GRAPH.to_device(1)),
        ValueError,
        "gno_aggregate: features: expected device 1 like graph, got device 0",
    ),
    "no such device": (
        lambda: GRAPH.to_device(2),
        ValueError,
        "Graph.to_device: device: expected an integer from 0 to 1, got 2",
    ),
    "no number of a device": (
        lambda: GRAPH.to_device("gpu"),
        TypeError,
        "Graph.to_device: device: expected an integer, got 'gpu'",
    ),
    "no graph": (
        lambda: pyops.gno_aggregate(to_device(FEATURES), to_device(FEATURES), to_device(KAPPA)),
        TypeError,
        "gno_aggregate: graph: expected pyops.Graph, got ndarray",
    ),
    "shape": (
        lambda: call(kappa=np.ones((4, 4), "f")),
        ValueError,
        "gno_aggregate: kappa: expected shape (num_edges=3, in_features*out_features), got (4, 4)",
    ),
    "mixed precision": (
        lambda: call(kappa=KAPPA.astype("d")),
        TypeError,
        "gno_aggregate: kappa: expected float32 like features, got float64",
    ),
    "None": (
        lambda: call(features=None),
        TypeError,
        "gno_aggregate: features: expected a NumPy array, got None",
    ),
    "too many": (
        lambda: pyops.exp(to_device(KAPPA), to_device(KAPPA)),
        TypeError,
        "exp: expected arguments (x), got 2 of them",
    ),
    "precision": (
        lambda: call(precision="half"),
        ValueError,
        "gno_aggregate: precision: expected one of ('highest', 'tf32x3', 'tf32'), got 'half'",
    ),
    "precision without products": (
        lambda: call(precision="tf32"),
        ValueError,
        "gno_aggregate: precision: expected 'highest', as no matrices are multiplied, got 'tf32'",
    ),
    "option": (
        lambda: call(colour=1),
        TypeError,
        "gno_aggregate: unexpected option 'colour'; options are: none",
    ),
    "out on the host": (
        lambda: call(out=np.ones((3, 2), "f")),
        TypeError,
        "gno_aggregate: out: expected an array on the device like the arguments, got numpy.ndarray",
    ),
    "out on another device": (
        lambda: call(out=to_device(np.ones((3, 2), "f"), 1)),
        ValueError,
        "gno_aggregate: out: expected device 0 like the arguments, got device 1",
    ),
    "type of out": (
        lambda: call(out=to_device(np.ones((3, 2)))),
        TypeError,
        "gno_aggregate: out: expected float32 like the inputs, got float64",
    ),
    "shape of out": (
        lambda: call(out=to_device(np.ones((3, 3), "f"))),
        ValueError,
        "gno_aggregate: out: expected shape (3, 2), got (3, 3)",
    ),
    "elements of out": (
        lambda: call(out=to_device(np.broadcast_to(np.ones((3, 1), "f"), (3, 2)))),
        ValueError,
        "gno_aggregate: out: expected distinct elements, got strides (4, 0)",
    ),
    "block on two sides": (
        lambda: blocks.pack_dimenet(to_device(KAPPA), KAPPA),
        TypeError,
        "pack_dimenet: B: expected an array on a device, got numpy.ndarray",
    ),
    "half precision of a block": (
        lambda: blocks.pack_dimenet(to_device(KAPPA.astype("e")), to_device(KAPPA)),
        TypeError,
        "pack_dimenet: A: expected float32 or float64, got float16",
    ),
    "out on the device, arguments on the host": (
        lambda: pyops.gno_aggregate(GRAPH, FEATURES, KAPPA, out=to_device(np.ones((3, 2), "f"))),
        TypeError,
        "gno_aggregate: out: expected a plain NumPy array",
    ),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED)
def test_refusals(refused):
    function, error, text = refused
    with pytest.raises(error) as caught:
        function()
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize("missing", ["operator", "phase"])
def test_no_kernel(missing, monkeypatch):
    _dispatch.find_kernel.cache_clear()
    if missing == "operator":
        monkeypatch.setattr(_dispatch, "supported", lambda: ["gat"])
    else:
        monkeypatch.delattr(ops.MODULES["gno_aggregate"], "forward")
    with pytest.raises(NotImplementedError, match="gno_aggregate: no kernel for arrays on a dev"):
        call()


def test_out_that_overlaps():
    x = np.ones((4, 3), "f")
    moved = to_device(x)
    one, other = moved.reshape(-1)[:6].reshape(2, 3), moved.reshape(-1)[3:9].reshape(2, 3)
    inputs = [to_device(np.ones((2, 3), "f")) for _ in range(3)]
    with pytest.raises(ValueError, match="out: gx2: expected memory of its own"):
        pyops.multiply.backward(*inputs, out=(one, other))


def test_out_that_is_an_input():
    x = to_device(np.arange(6, dtype="f").reshape(2, 3))
    expected = pyops.multiply(np.array(x), np.array(x))
    assert pyops.multiply(x, x, out=x) is x
    assert_same([np.array(x)], [expected])


def test_too_little_memory(platform, monkeypatch):
    def empty(shape, dtype):
        raise MemoryError("Out of memory allocating 1 bytes")

    monkeypatch.setattr(platform.runtime, "empty", empty)
    with pytest.raises(MemoryError, match=r"exp: not enough memory on device 0: Out of memory"):
        pyops.exp(to_device(KAPPA))


@pytest.mark.parametrize("text", ["CUDA out of memory.", "CUBLAS_STATUS_ALLOC_FAILED"])
def test_too_little_memory_of_other_libraries(platform, monkeypatch, text):
    monkeypatch.setattr(platform.runtime, "empty", mock.Mock(side_effect=RuntimeError(text)))
    with pytest.raises(MemoryError, match="exp: not enough memory on device 0: "):
        pyops.exp(to_device(KAPPA))


def test_other_errors_of_the_runtime(platform, monkeypatch):
    monkeypatch.setattr(platform.runtime, "empty", mock.Mock(side_effect=RuntimeError("launch")))
    with pytest.raises(RuntimeError, match=r"^launch$"):
        pyops.exp(to_device(KAPPA))


def test_no_compiler_of_cuda(platform, monkeypatch):
    error = ImportError("libnvrtc.so.13")
    monkeypatch.setattr(platform.runtime, "_run", mock.Mock(side_effect=error))
    with pytest.raises(ImportError, match=r"exp: .*pyops-kernels\[cuda\].*: libnvrtc"):
        pyops.exp(to_device(KAPPA))


def test_no_cupy(monkeypatch):
    monkeypatch.setattr(_device, "found", _device.Platform)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(
        ImportError, match=r"exp: arrays on a CUDA device need CuPy.*pyops-kernels\[cuda\]"
    ):
        pyops.exp(to_device(KAPPA))
    with pytest.raises(ImportError, match=r"Graph\.to_device: arrays on a CUDA device need CuPy"):
        GRAPH.to_device()


def test_no_driver(monkeypatch):
    def count():
        raise RuntimeError("cudaErrorInsufficientDriver")

    driver = SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=count))
    monkeypatch.setattr(_device, "found", _device.Platform)
    monkeypatch.setattr(_device, "cupy_runtime", lambda: None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=driver))
    text = "expected a CUDA device and its driver, got: cudaErrorInsufficientDriver"
    with pytest.raises(RuntimeError, match=f"Graph.to_device: {text}"):
        GRAPH.to_device()


def test_the_real_library_without_a_device(monkeypatch):
    cupy = pytest.importorskip("cupy")
    try:
        pytest.skip(f"{cupy.cuda.runtime.getDeviceCount()} devices")
    except cupy.cuda.runtime.CUDARuntimeError:
        monkeypatch.setattr(_device, "found", _device.Platform)
        with pytest.raises(RuntimeError, match=r"Graph\.to_device: expected a CUDA device"):
            GRAPH.to_device()
