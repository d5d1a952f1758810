"""Row indices on a device are copied to the host once, and checked there."""

import numpy as np
import pytest

from ....support.small_cases import OPERATORS, arguments
from ..host import COMPILER
from .test_calls import platform as platform  # a fixture

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
torch = pytest.importorskip("torch")

import pyops.torch as pt  # noqa: E402
from pyops.torch import _host  # noqa: E402

NAMES = [name for name, op in OPERATORS.items() if op.signature.indexed]


@pytest.fixture
def copied(monkeypatch):
    """Record the tensors that are copied to the host."""
    found = []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: found.append(tensor) or tensor.clone())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_copied_once(name, copied):
    graph, arrays, options = arguments(name)
    there, op = graph.to_device(), OPERATORS[name]
    (option,) = op.signature.indexed
    expected = op(graph, *arrays, **options)
    options[option] = rows = torch.from_numpy(np.array(options[option]))
    inputs = [torch.tensor(a, requires_grad=True) for a in arrays]
    y = getattr(pt, name)(there, *inputs, **options)
    np.testing.assert_allclose(y.detach(), expected, 1e-9)
    torch.autograd.grad(getattr(pt, name)(there, *inputs, **options).sum(), inputs)
    assert [id(tensor) for tensor in copied] == [id(rows)]


def test_copied_anew_when_written_to(copied):
    rows = torch.tensor([0, 1])
    assert _host.on_host(rows) is _host.on_host(rows)
    rows += 1
    assert _host.on_host(rows).tolist() == [1, 2]
    assert len(copied) == 2


def test_what_torch_does_not_watch_is_copied_each_time(copied):
    with torch.inference_mode():
        rows = torch.tensor([0, 1])
    _host.on_host(rows)
    rows.numpy()[:] = 2
    assert _host.on_host(rows).tolist() == [2, 2]


def test_copies_go_with_their_tensors(copied):
    rows = torch.tensor([0, 1])
    left = len(_host._copies)
    _host.on_host(rows)
    assert len(_host._copies) == left + 1
    copied.clear()
    del rows
    assert len(_host._copies) == left
