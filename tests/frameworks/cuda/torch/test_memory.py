"""Device memory of torch calls is allocated by torch, on its current stream."""

import weakref
from contextlib import nullcontext

import numpy as np
import pytest

from ..host import COMPILER
from ..platform import memory_of
from .test_calls import platform as platform  # a fixture

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402
from pyops.cuda import _device  # noqa: E402


@pytest.fixture
def made(platform, monkeypatch):
    """Return the allocations of calls."""
    found, memory = [], platform.memory

    def watched(make):
        def kept(size):
            found.append(make(size))
            return found[-1]

        return memory(kept)

    monkeypatch.setattr(platform, "memory", watched)
    return found


@pytest.mark.parametrize("mode", [nullcontext, torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_are_tensors_of_that_memory(dtype, mode, made):
    with mode():
        x = torch.ones(2, 3, dtype=dtype)
        y = pt.exp(x)
    assert y.dtype == dtype
    assert torch.allclose(y, x.exp())
    assert y.untyped_storage()._cdata in [storage._cdata for storage in made]
    assert y._base is None
    assert y.is_inference() == (mode is torch.inference_mode)


def test_results_may_be_written_to():
    x = torch.ones(2, requires_grad=True)
    y = pt.negative(x)
    (y.add_(1) * 3).sum().backward()
    assert torch.equal(x.grad, torch.full((2,), -3.0))


def test_gradients_are_of_that_memory(made):
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    for gradient in torch.autograd.grad(pt.multiply(x, y).sum(), [x, y]):
        assert gradient.untyped_storage()._cdata in [storage._cdata for storage in made]


def test_nothing_of_it_is_nothing():
    assert pt.exp(torch.zeros(0, 3)).shape == (0, 3)


def test_too_little(platform, monkeypatch):
    def no_memory(size, **_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    x = torch.ones(3)
    with monkeypatch.context() as short:
        short.setattr(torch, "UntypedStorage", no_memory)
        with pytest.raises(MemoryError, match=r"exp: not enough memory on device 0: CUDA out of"):
            pt.exp(x)
    assert platform.runtime.make is None


def test_memory_of_cupy(monkeypatch):
    """CuPy arrays in host memory, which CuPy does not access."""
    cupy = pytest.importorskip("cupy")
    on = object.__new__(_device.Platform)
    on.cupy = cupy
    monkeypatch.setattr(on, "current", lambda: 0, raising=False)
    sizes, gone = [], []

    def make(size):
        sizes.append(size)
        storage = torch.UntypedStorage(size)
        weakref.finalize(storage, gone.append, size)
        return storage

    with on.memory(make):
        arrays = [cupy.empty(shape, "f") for shape in ((2, 3), (0, 3))]
    assert sizes == [24, 0]
    owner = on.owner(arrays[0])
    memory_of(owner).view("f")[:] = np.arange(6)
    assert [a.data.ptr for a in arrays] == [owner.data_ptr(), 0]
    del owner
    assert not gone
    del arrays
    assert sorted(gone) == [0, 24]
