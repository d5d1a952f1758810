"""The emulated device detects errors that would occur on a real one."""

import numpy as np
import pytest

from pyops.cuda import _source

from . import host
from .host import COMPILER, Host

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
SOURCE = """
extern "C" __global__ void sums(const real* x, real* y) {
  SHARED(real, kept);
  kept[threadIdx.x] = x[thread_number()];
  __syncthreads();
  const real other = kept[blockDim.x - 1 - threadIdx.x];
  y[thread_number()] = lane_sum<32>(other) + threadIdx.x;
}
extern "C" __global__ void race(const real* x, real* y) {
  SHARED(real, kept);
  kept[threadIdx.x] = x[thread_number()];
  y[thread_number()] = kept[blockDim.x - 1 - threadIdx.x];
}
extern "C" __global__ void all_write_one(const real* x, real* y) {
  y[0] = x[thread_number()];
}
extern "C" __global__ void some_leave(const real* x, real* y) {
  if (x[thread_number()] < 0) return;
  y[thread_number()] = lane_sum<32>(x[thread_number()]);
}
extern "C" __global__ void two_ways(const real* x, real* y) {
  if (threadIdx.x % 2) __syncthreads();
  else
    __syncthreads();
}
"""


@pytest.fixture(autouse=True)
def source(tmp_path_factory, monkeypatch):
    folder = tmp_path_factory.getbasetemp() / "emulated"
    folder.mkdir(exist_ok=True)
    (folder / "trial.cu").write_text(SOURCE)
    (folder / "common.cuh").write_text((_source.KERNELS / "common.cuh").read_text())
    monkeypatch.setattr(_source, "KERNELS", folder)
    _source._read.cache_clear()
    yield
    _source._read.cache_clear()


def run(kernel, x, order=0, block=64, dtype=np.float32):
    y = np.zeros_like(x)
    args = x, y
    Host(order).launch("trial", kernel, dtype, len(x) // block, block, args, shared=8 * block)
    return y


@pytest.mark.parametrize("order", range(5))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums(order, dtype):
    x = np.random.default_rng(0).standard_normal(256).astype(dtype)
    turned = x.reshape(-1, 2, 32)[:, ::-1].sum(-1)
    expected = np.repeat(turned.ravel(), 32) + np.tile(np.arange(64), 4)
    assert np.allclose(run("sums", x, order, dtype=dtype), expected, atol=1e-5)


@pytest.mark.parametrize("kernel", ["race", "all_write_one"])
def test_race(kernel):
    x = np.arange(128, dtype=np.float32)
    results = {run(kernel, x, order).tobytes() for order in range(4)}
    assert len(results) > 1


@pytest.mark.parametrize("kernel", ["some_leave", "two_ways"])
def test_divergence(kernel):
    x = np.where(np.arange(64) % 3, 1, -1).astype(np.float32)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=f"{kernel}.*not all lanes come here"):
            run(kernel, x)
    assert run("sums", x).shape == x.shape


def test_arguments():
    x = np.zeros(64, np.float32)
    for args, wrong in (
        ((x, x.astype(np.float64)), "argument 2"),
        ((x,), "expected 2 arguments"),
        ((x, 3), "argument 2"),
        ((x, np.zeros(128, np.float32)[::2]), "contiguous"),
    ):
        with pytest.raises(AssertionError, match=wrong):
            Host().launch("trial", "race", np.float32, 1, 64, args)


def test_no_blocks():
    Host().launch("trial", "race", np.float32, (0, 3), 64, (None, None))


def test_unknown_kernels_do_not_compile():
    with pytest.raises(RuntimeError, match="nowhere"):
        host.build("int x = nowhere;", [], "broken.so")
