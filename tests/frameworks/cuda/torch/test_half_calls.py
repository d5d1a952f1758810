"""Device tensors in half precision: kernels read their memory as it is."""

import numpy as np
import pytest

from ....support.cases import representative
from ..host import COMPILER, Host
from ..on_device import on_device
from ..test_half import READ, TYPES, narrow

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402
from pyops.torch import _call  # noqa: E402

from .test_calls import platform as platform  # noqa: E402


def tensor(array, **keywords):
    """Return a tensor with the elements of an array, of which torch may not know the type."""
    if array.dtype == np.float32:
        return torch.tensor(array, **keywords)
    kind = getattr(torch, array.dtype.name)
    return torch.tensor(array.view(np.int16)).view(kind).requires_grad_(bool(keywords))


def only_parameters(given):
    assert given.dtype not in _call.HALVES
    return given


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", READ)
def test_values_and_derivatives(name, kind, monkeypatch):
    """The same bits as those of arrays, without a conversion."""
    problem = narrow(representative(name).problem(), kind)
    expected = {}
    for phase in "forward", "backward", "double_backward":
        with on_device(Host()):
            expected[phase] = problem.run(phase)
    monkeypatch.setattr(_call, "widened", only_parameters)
    inputs = [tensor(a, requires_grad=True) for a in problem.inputs]
    y = getattr(pt, name)(problem.graph.to_device(), *inputs, **problem.options)
    gy = tensor(problem.arrays["gy"], requires_grad=True)
    first = torch.autograd.grad(y, inputs, gy, create_graph=True)
    second = torch.autograd.grad(first, [*inputs, gy], [tensor(a) for a in problem.cotangents])
    for phase, got in ("forward", [y]), ("backward", first), ("double_backward", second):
        for one, other in zip(got, expected[phase], strict=True):
            assert torch.equal(one, tensor(other)), phase
