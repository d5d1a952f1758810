"""Arrays that, outside the device operators, support only what CuPy's arrays support."""

import contextlib

import cupy
import numpy as np

from pyops.cuda import _dispatch

from .platform import OnDevice, Platform

_run = _dispatch.run
inside = False
"""Whether a device operator runs, which uses the arrays as host arrays."""


def bare(value):
    """Return arguments as host arrays."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(bare, value))
    return np.asarray(value) if isinstance(value, np.ndarray) else value


def strict(value):
    """Return results as device arrays."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(strict, value))
    return np.array(value).view(Strict)


def on_host(value):
    """Return whether CuPy's functions would refuse a value or have to copy it."""
    if isinstance(value, (list, tuple)):
        return any(map(on_host, value))
    return type(value) is np.ndarray and value.ndim > 0


class Strict(OnDevice):
    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **keywords):
        if not inside:
            assert method in ("__call__", "reduce"), f"{ufunc.__name__}.{method}: not in order"
            assert not on_host([*inputs, *out]), f"{ufunc.__name__}: arrays of the host"
        more = {"out": bare(out)} if any(x is not None for x in out) else {}
        result = getattr(ufunc, method)(*bare(inputs), **more, **keywords)
        return out[0] if more else strict(result)

    def __array_function__(self, func, types, args, kwargs):
        if not inside:
            assert hasattr(cupy, func.__name__), f"{func.__name__}: CuPy has none"
            assert not on_host([*args, *kwargs.values()]), f"{func.__name__}: arrays of the host"
        result = func(*bare(args), **{n: bare(a) for n, a in kwargs.items()})
        return strict(result) if isinstance(result, (np.ndarray, list)) else result

    def __getitem__(self, key):
        assert inside or not on_host(key), "an index on the host"
        found = super().__getitem__(key)
        return found if isinstance(found, np.ndarray) else strict(found)

    def __setitem__(self, key, value):
        assert inside or not on_host([key, value]), "from the host"
        super().__setitem__(key, value)

    def get(self):
        raise AssertionError("tensors have none")


class Tensor:
    """Array of another library, which can only be imported by a protocol."""

    dtype = "float"

    def __init__(self, array):
        self.array = array

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class StrictPlatform(Platform):
    def __init__(self):
        super().__init__()
        self.reads = 0

    def adopt(self, value):
        value = getattr(value, "array", value)
        return super().adopt(value) if inside else (value, value.number)

    def copy(self, array):
        return super().copy(array).view(Strict)

    def to_host(self, array):
        self.reads += 1
        return np.array(getattr(array, "array", array))

    @contextlib.contextmanager
    def on(self, number):
        super().on(number)
        before, self.number = self.number, number
        yield
        self.number = before

    number = 0

    def current(self):
        return self.number


def run(*arguments):
    """Run the device front end and make its results strict."""
    global inside
    before, inside = inside, True
    try:
        results = _run(*arguments)
    finally:
        inside = before
    return tuple(None if r is None else np.asarray(r).view(Strict) for r in results)
