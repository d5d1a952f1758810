"""Memory of large results: owned while they live, then pooled for later results within bounds."""

import copy
import gc
import mmap
import signal
import sys
import threading
import time

import numpy as np
import pytest

import pyops
from pyops._call import memory
from pyops._call.memory import PAGE, Pages, new_array

FLOATS = PAGE // 4
huge_pages = pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without them")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(Pages, "lent", [])


def large(pages, dtype=np.float32):
    return new_array((int(pages * PAGE) // np.dtype(dtype).itemsize,), np.dtype(dtype))


def kept():
    """Return the number of unused pooled pages."""
    return sum(pages for owner, pages, _ in Pages.lent if owner() is None)


def address(array):
    return array.ctypes.data


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shape", [(0, 3), (5,), (FLOATS - 1,), (FLOATS,), (3, FLOATS), (1250, 700)]
)
def test_is_a_plain_array(shape, dtype):
    array = new_array(shape, np.dtype(dtype))
    array[...] = 1
    assert type(array) is np.ndarray
    assert (array.shape, array.dtype) == (shape, dtype)
    assert array.flags.carray
    assert array.sum() == array.size


@huge_pages
@pytest.mark.parametrize("pages", [1, 1.3, 1.7, 5])
def test_begins_at_a_huge_page(pages):
    assert address(large(pages)) % PAGE == 0


@huge_pages
def test_the_next_gets_the_memory():
    first = large(3)
    place = address(first)
    view = first[5:7]
    del first
    other = large(3)
    assert address(other) != place
    del view
    assert address(large(2.5, np.float64)) == place


def test_results_do_not_share_memory():
    graph = pyops.Graph(np.arange(1250), np.arange(1250))
    rng = np.random.default_rng(3)
    kept = []
    for _ in range(4):
        x = rng.standard_normal((1250, 700), dtype=np.float32)
        kept.append((pyops.aggregate(graph, x), x))
        pyops.aggregate(graph, x)
    for result, x in kept:
        np.testing.assert_array_equal(result, x)
    assert len({address(result) for result, _ in kept}) == len(kept)


@huge_pages
@pytest.mark.parametrize("pages", [(4,) * 20, (1,) * 100, (20, 20, 20), (40, 1), (1, 40)])
def test_little_is_kept(pages):
    arrays = [large(p) for p in pages]
    assert kept() == 0
    del arrays
    assert min(min(pages), Pages.most) <= kept() <= Pages.most


@huge_pages
def test_much_larger_memory_is_not_taken():
    held = large(8)
    place = address(held)
    del held
    assert address(large(4)) != place


@pytest.mark.parametrize("fault", ["no room", "no advice", "no huge pages"])
def test_without_huge_pages(monkeypatch, fault):
    def refuse(*arguments):
        raise OSError

    if fault == "no room":
        monkeypatch.setattr(memory.mmap, "mmap", refuse)
    elif fault == "no advice":
        monkeypatch.setattr(Pages, "_new", refuse)
    else:
        monkeypatch.delattr(memory.mmap, "MADV_HUGEPAGE", raising=False)
    array = large(2)
    array[...] = 2
    assert array.base is None
    del array
    assert not Pages.lent


def test_memory_error():
    with pytest.raises(MemoryError):
        new_array((2**50,), np.dtype(np.float64))


@huge_pages
def test_memory_is_not_copied():
    """Pooled memory is not copied with an array, since both copies would own it."""
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.copy(large(2).base)


def test_threads():
    """Arrays that many threads allocate and free concurrently never share memory."""
    faults = []

    def work(number):
        rng = np.random.default_rng(number)
        held = []
        for turn in range(150):
            array = large(1 + rng.integers(3))
            mark = 1000 * number + turn
            array[::1024] = mark
            held.append((array, mark))
            if len(held) > 2:
                old, expected = held.pop(rng.integers(2))
                if (old[::1024] != expected).any():
                    faults.append(expected)
                del old

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        team = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in team:
            thread.start()
        for thread in team:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    gc.collect()
    assert not faults
    assert kept() <= Pages.most


@huge_pages
def test_no_interrupt_is_lost():
    """No interrupt is lost while arrays are freed."""

    class InterruptionError(Exception):
        pass

    def interrupt(*_):
        raise InterruptionError

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(20):
            arrays = [large(1) for _ in range(500)]
            with pytest.raises(InterruptionError):  # noqa: PT012
                signal.setitimer(signal.ITIMER_REAL, 2e-4)
                del arrays
                end = time.perf_counter() + 2
                while time.perf_counter() < end:
                    pass
    finally:
        signal.signal(signal.SIGALRM, before)
