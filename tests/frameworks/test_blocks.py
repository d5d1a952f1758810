"""Parameter blocks of tensors of PyTorch and arrays of JAX, against those of NumPy."""

import functools

import numpy as np
import pytest

import pyops
from pyops import blocks

SHAPES = {
    "gno": {"U": (5, 2), "b_u": (5,), "V": (12, 5), "b_v": (12,)},
    "gat": {"a_src": (3, 2), "a_dst": (3, 2), "a_edge": (3, 4)},
    "basis": {"basis": (6, 3)},
    "dimenet": {"A": (6, 3), "B": (4, 3)},
    "edge_network": {"W_src": (5, 3), "b_1": (5,), "W_2": (4, 5), "b_2": (4,)},
}
SIZES = {
    "gno": {"dim": 2, "hidden": 5},
    "gat": {"heads": 3, "width": 2},
    "basis": {"modes": 3},
    "dimenet": {"channels": 4},
    "edge_network": {"src_width": 3, "hidden": 5},
}
every_block = pytest.mark.parametrize("name", SHAPES)


class Torch:
    def __init__(self):
        self.torch = pytest.importorskip("torch")

    def array(self, array):
        return self.torch.from_numpy(array.copy())

    def gradients(self, function, parts):
        leaves = [part.clone().requires_grad_() for part in parts]
        return self.torch.autograd.grad(function(*leaves), leaves)

    def compiled(self, function):
        return self.torch.compile(function, fullgraph=True, backend="eager")

    def gno_conv(self, *arguments, **options):
        from pyops.torch import gno_conv

        return gno_conv(*arguments, **options)


class Jax:
    def __init__(self):
        self.jax = pytest.importorskip("jax")
        self.jax.config.update("jax_enable_x64", True)
        self.compiled = self.jax.jit

    def array(self, array):
        return self.jax.numpy.asarray(array)

    def gradients(self, function, parts):
        return self.jax.grad(function, tuple(range(len(parts))))(*parts)

    def gno_conv(self, *arguments, **options):
        from pyops.jax import gno_conv

        return gno_conv(*arguments, **options)


@pytest.fixture(params=[Torch, Jax])
def library(request):
    return request.param()


def drawn(name, dtype=np.float64):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(dtype) for shape in SHAPES[name].values()]


def functions(name):
    """Return the functions that pack parts, and that unpack a block into them."""
    pack, unpack = (getattr(blocks, f"{verb}_{name}") for verb in ("pack", "unpack"))
    unpack = functools.partial(unpack, **SIZES[name])
    if name != "edge_network":
        return pack, unpack

    def layers(block):
        first, weights, biases, *_ = unpack(block)
        return first[0], biases[0], weights[0], biases[1]

    return (lambda *parts: pack(parts[::2], parts[1::2], src_width=3)), layers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_block
def test_values(library, name, dtype):
    pack, unpack = functions(name)
    parts = drawn(name, dtype)
    given = [library.array(part) for part in parts]
    block = pack(*given)
    assert type(block) is type(given[0])
    assert block.dtype == given[0].dtype
    np.testing.assert_array_equal(block, pack(*parts))
    np.testing.assert_array_equal(library.compiled(pack)(*given), block)
    again = unpack(block)
    for one, part in zip(again if isinstance(again, tuple) else [again], parts, strict=True):
        np.testing.assert_array_equal(one, part)


@every_block
def test_gradients(library, name):
    """The gradient of <block, w> with respect to the parts is w unpacked."""
    pack, unpack = functions(name)
    parts = drawn(name)
    weights = np.random.default_rng(1).standard_normal(pack(*parts).shape)
    expected = unpack(weights)
    w = library.array(weights)
    given = [library.array(part) for part in parts]
    found = library.gradients(lambda *parts: (pack(*parts) * w).sum(), given)
    for one, other in zip(
        found, expected if isinstance(expected, tuple) else [expected], strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_parts_are_trained_through_an_operator(library):
    graph, rng = pyops.Graph([0, 1, 2, 2], [1, 2, 0, 1]), np.random.default_rng(2)
    features, coords = rng.standard_normal((3, 3)), rng.standard_normal((4, 2))
    options, parts = {"hidden": 5}, drawn("gno")
    y = pyops.gno_conv(graph, features, coords, blocks.pack_gno(*parts), **options)
    expected = pyops.gno_conv.backward(
        graph, features, coords, blocks.pack_gno(*parts), 2 * y, **options
    )[-1]

    def loss(*parts):
        arrays = [library.array(a) for a in (features, coords)]
        return (library.gno_conv(graph, *arrays, blocks.pack_gno(*parts), **options) ** 2).sum()

    found = library.gradients(loss, [library.array(part) for part in parts])
    for one, other in zip(found, blocks.unpack_gno(expected, **SIZES["gno"]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)


@every_block
def test_parts_of_different_kinds_are_refused(library, name):
    pack, unpack = functions(name)
    parts = [library.array(part) for part in drawn(name)]
    with pytest.raises(TypeError, match=f"^pack_{name}: .*: expected .*, got list"):
        pack([1.0], *parts[1:])
    with pytest.raises(ValueError, match=f"^pack_{name}: .*: expected"):
        pack(*parts[:-1], parts[-1][..., None])
    if len(parts) > 1:
        wrong = library.array(drawn(name, np.float32)[-1])
        with pytest.raises(TypeError, match=f"^pack_{name}: .*: expected .*float64 like"):
            pack(*parts[:-1], wrong)
    with pytest.raises(ValueError, match=rf"^unpack_{name}: .*, got shape \(5,\)"):
        unpack(library.array(np.ones(5)))
