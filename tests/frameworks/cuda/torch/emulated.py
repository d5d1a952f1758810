"""Tensors of torch on an emulated device: host memory, but distinct from host tensors."""

import contextlib

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from ..platform import Platform, to_device

HOST, DEVICE = torch.device("cpu"), torch.device("cuda", 0)
WAITS = {"cpu", "item", "tolist", "nonzero", "equal", "__bool__", "__int__", "__float__", "any"}


class Elsewhere(TorchFunctionMode):
    """Mode in which all tensors are on a device, unless created on or moved to the host.

    Records what synchronizes with the device; refuses functions of tensors of both places.
    """

    def __init__(self):
        super().__init__()
        self.waits = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", ""), dict(kwargs or {})
        given = [a for a in tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        theirs = {self.place(t) for t in given if t.dim()} or {self.place(t) for t in given}
        if name == "__get__":
            return self.get(func, *args)
        if len(theirs) > 1 and name != "to" and "pyops" not in str(func):
            raise RuntimeError(f"{name}: expected all tensors on one device, got both")
        there = theirs == {DEVICE}
        if name == "numpy" and there:
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        place = self.asked(name, args, kwargs)
        if there and (name in WAITS or place == HOST):
            self.waits.append(name)
        if place is not None:
            args, kwargs = tree_map(here, args), tree_map(here, kwargs)
        elif given:
            place = theirs.pop()
        found = func(*args, **kwargs)
        if hasattr(found, "__next__"):
            found = iter([self.put(f, place, given) for f in found])
        return tree_map(lambda f: self.put(f, place, given), found)

    def get(self, func, tensor, *_):
        own = {"device": self.place(tensor), "is_cpu": self.place(tensor) == HOST}
        return own.get(func.__self__.__name__, func(tensor))

    @staticmethod
    def place(tensor):
        return getattr(tensor, "place", DEVICE)

    @staticmethod
    def asked(name, args, kwargs):
        """Return the requested place."""
        if name == "cpu":
            return HOST
        named = [*args, kwargs.get("device")] if name == "to" else [kwargs.get("device")]
        for one in named:
            if isinstance(one, str | torch.device):
                return torch.device(one)
            if name == "to" and isinstance(one, torch.Tensor) and one is not args[0]:
                return Elsewhere.place(one)
        return None

    def put(self, found, place, given):
        if not isinstance(found, torch.Tensor):
            return found
        if any(found is g for g in given):
            if place == self.place(found):
                return found
            found = found.clone()
        found.place = place or HOST
        return found


def from_numpy(array, make=torch.from_numpy):
    found = make(array)
    found.place = HOST
    return found


def here(value):
    return HOST if isinstance(value, torch.device) or value == "cuda" else value


class Memory(Platform):
    """Platform whose results are in host memory."""

    def memory(self, make):
        return contextlib.nullcontext()

    def owner(self, array):
        return None


def array(tensor):
    place = Elsewhere.place(tensor)
    with torch._C.DisableTorchFunction():
        return tensor.numpy() if place == HOST else to_device(tensor.numpy())


def tensor(array, owner, device):
    with torch._C.DisableTorchFunction():
        return torch.tensor(np.array(array))
