"""Front end for PyTorch, over the operator table: derivatives, transformations, compilation.

Most tests run over the same examples of operators, so this is one file.
"""

import builtins
import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyops  # noqa: E402
import pyops.torch as pt  # noqa: E402

from ...support.small_cases import OPERATORS  # noqa: E402
from .examples import Example, assert_derivatives, assert_maps  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

SMOOTH = "tanh"
FEW = ["gno_conv", "kernel_conv", "ono_encode", "elem_scale", "tanh", "power", "sum", "max"]


@pytest.mark.parametrize("name", OPERATORS)
def test_same_as_numpy(name):
    example = Example(name)
    graph = [] if example.graph is None else [example.graph]
    expected = example.op(*graph, *(t.numpy() for t in example.tensors), **example.options)
    assert np.array_equal(example(*example.tensors).numpy(), expected)
    assert np.array_equal(example(*example.leaves()).detach().numpy(), expected)


def test_star_import():
    assert not {*pt.__all__} & {*dir(builtins)}
    assert {*OPERATORS} - {*pt.__all__} == {"abs", "max", "min", "sum"}


@pytest.mark.parametrize("name", OPERATORS)
def test_inputs_by_name(name):
    example = Example(name)
    inputs = [*example.op.signature.inputs]
    held = dict(zip(inputs, example.tensors, strict=False))
    graph = {} if example.graph is None else {"graph": example.graph}
    y = example.function(**graph, **held, **example.options)
    assert torch.equal(y, example(*example.tensors))
    with pytest.raises(TypeError, match=f"{name}: {inputs[0]}: expected one value, got it by"):
        example.function(*graph.values(), example.tensors[0], **held, **example.options)


@pytest.mark.parametrize("name", FEW)
def test_inputs_by_name_where_torch_compiles(name):
    example = Example(name)
    held = dict(zip(example.op.signature.inputs, example.tensors, strict=False))
    graph = {} if example.graph is None else {"graph": example.graph}
    torch._dynamo.reset()
    compiled = torch.compile(example.function, fullgraph=True, backend="eager")
    assert torch.equal(compiled(**graph, **held, **example.options), example(*example.tensors))


@pytest.mark.parametrize("name", OPERATORS)
def test_derivatives(name):
    assert_derivatives(Example(name))


WEIGHTED = [name for name, op in OPERATORS.items() if op.signature.attention]


@pytest.mark.parametrize("name", WEIGHTED)
def test_attention_that_is_returned(name):
    example = Example(name)
    weighted = functools.partial(example, return_attention=True)
    arrays = [t.numpy() for t in example.tensors]
    expected = example.op(example.graph, *arrays, return_attention=True, **example.options)
    for tensors in example.tensors, example.leaves():
        y, alpha = weighted(*tensors)
        assert y.requires_grad == tensors[0].requires_grad
        assert not alpha.requires_grad
        for one, other in zip((y, alpha), expected, strict=True):
            assert np.array_equal(one.detach().numpy(), other)
    assert torch.autograd.gradcheck(lambda *t: weighted(*t)[0], example.leaves(), fast_mode=True)
    batch = [torch.stack([t, t]) for t in example.tensors]
    assert np.array_equal(torch.func.vmap(weighted)(*batch)[1][1].numpy(), expected[1])
    assert "attention weights are detached" in example.function.__doc__


@pytest.mark.parametrize("name", WEIGHTED)
def test_attention_is_a_constant(name):
    example = Example(name)
    tensors, everything = tuple(example.tensors), tuple(range(len(example.tensors)))

    def total(*given):
        y, alpha = example(*given, return_attention=True)
        return (y * y).sum() + (alpha * alpha).sum()

    def alone(*given):
        return (example(*given) ** 2).sum()

    compiled = torch.compile(total, fullgraph=True, backend="aot_eager")
    leaves = example.leaves()
    torch.testing.assert_close(
        torch.autograd.grad(compiled(*leaves), leaves), torch.autograd.grad(alone(*leaves), leaves)
    )
    torch.testing.assert_close(compiled(*tensors), total(*tensors))
    torch.testing.assert_close(
        torch.func.grad(total, everything)(*tensors), torch.func.grad(alone, everything)(*tensors)
    )
    along = tuple(map(torch.ones_like, tensors))
    torch.testing.assert_close(
        torch.func.jvp(total, tensors, along)[1], torch.func.jvp(alone, tensors, along)[1]
    )


def test_whether_attention_is_returned_is_checked():
    graph, x, w = pt.Graph([0], [0]), torch.ones(1, 2), torch.ones(4)
    with pytest.raises(TypeError, match="gat: return_attention: expected True or False, got 1"):
        pt.gat(graph, x, x, w, heads=1, return_attention=1)
    with pytest.raises(TypeError, match="unexpected option 'return_attention'"):
        pt.aggregate(graph, x, return_attention=True)


LARGE = "kernel_conv", "ono_encode"
"""Examples with so many elements that second derivatives by each take half a minute."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGE)) for name in FEW]
)
def test_transformations(name):
    example = Example(name)
    primals = tuple(example.tensors)
    everything = tuple(range(len(primals)))
    along = torch.func.jacfwd(example, everything)(*primals)
    back = torch.func.jacrev(example, everything)(*primals)
    for one, other in zip(along, back, strict=True):
        assert one.abs().max() > 0
        torch.testing.assert_close(one, other)
    first = torch.func.hessian(example.energy, everything)(*primals)
    second = torch.func.jacrev(torch.func.jacrev(example.energy, everything), everything)(*primals)
    third = torch.func.jacrev(torch.func.jacfwd(example.energy, everything), everything)(*primals)
    for i in everything:
        for j in everything:
            torch.testing.assert_close(first[i][j], second[i][j])
            torch.testing.assert_close(first[i][j], third[i][j])


@pytest.mark.parametrize("name", FEW)
def test_vmap(name):
    assert_maps(Example(name))


def force_loss(example):
    def loss(*tensors):
        (force,) = torch.autograd.grad(example.energy(*tensors), tensors[-1], create_graph=True)
        return (force * force).sum()

    return loss


@pytest.mark.parametrize("name", FEW)
def test_compiled(name):
    torch._dynamo.reset()
    torch._dynamo.config.trace_autograd_ops = True
    example = Example(name)
    for function in example.energy, force_loss(example):
        compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
        leaves, others = example.leaves(), example.leaves()
        torch.testing.assert_close(compiled(*leaves), function(*others))
        gradients = torch.autograd.grad(compiled(*leaves), leaves, allow_unused=True)
        expected = torch.autograd.grad(function(*others), others, allow_unused=True)
        for one, other in zip(gradients, expected, strict=True):
            zero = torch.zeros(())
            torch.testing.assert_close(
                zero if one is None or not one.any() else one,
                zero if other is None or not other.any() else other,
                check_dtype=False,
            )


def test_exported():
    example = Example("gno_conv")

    class Model(torch.nn.Module):
        def forward(self, *tensors):
            return example(*tensors)

    program = torch.export.export(Model(), tuple(example.tensors)).module()
    assert torch.equal(program(*example.tensors), example(*example.tensors))


@pytest.mark.parametrize("name", FEW)
@pytest.mark.parametrize("phase", ["forward", "backward", "double_backward", "jvp"])
def test_opcheck(name, phase):
    example = Example(name)
    tensors, count = example.tensors, len(example.op.signature.inputs)
    inputs = [*tensors, *[None] * (count - len(tensors))]
    gy = torch.ones_like(example(*tensors))
    graph = []
    if example.graph is not None:
        graph = [*example.graph._tensors, *example.graph._sizes()[:3]]
    options = example.op._phases["forward"]._complete(example.options)
    options = [[v] if n == "axis" and isinstance(v, int) else v for n, v in options.items()]
    here = [t is not None for t in inputs]
    arguments = {
        "forward": [*inputs, *options],
        "backward": [*inputs, gy, *options, here],
        "double_backward": [*inputs, gy, *inputs, *options, [*here, True]],
        "jvp": [*inputs, *inputs, *options],
    }[phase]
    if phase in ("forward", "backward"):
        arguments = [
            a.clone().requires_grad_() if isinstance(a, torch.Tensor) else a for a in arguments
        ]
    name = example.name if phase == "forward" else f"{example.name}_{phase}"
    torch.library.opcheck(getattr(torch.ops.pyops, name), (*graph, *arguments))


def test_compounds():
    """Results, derivatives and transformations of compound operators."""
    x = torch.linspace(0.1, 1.1, 5, dtype=torch.float64, requires_grad=True)
    w = torch.tensor([3.0, 6.5], dtype=torch.float64, requires_grad=True)
    basis = functools.partial(pt.dimenet_basis, num_spherical=3, num_radial=2)
    expected = pyops.dimenet_basis(
        *(t.detach().numpy() for t in (x, w)), num_spherical=3, num_radial=2
    )
    compiled = torch.compile(basis, fullgraph=True, backend="aot_eager")
    for found in basis(x, w), compiled(x, w):
        for one, other in zip(found, expected, strict=True):
            assert np.array_equal(one.detach().numpy(), other)
    checks = {"fast_mode": True, "atol": 1e-5, "rtol": 1e-4}
    assert torch.autograd.gradcheck(basis, (x, w), check_forward_ad=True, **checks)
    assert torch.autograd.gradgradcheck(basis, (x, w), **checks)
    _, mapped = torch.func.vmap(basis, (0, None))(torch.stack([x, x]), w)
    assert np.array_equal(mapped[1].detach().numpy(), expected[1])


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda x, w: (x,), TypeError, r"expected arguments \(distances, frequencies\), got 1"),
        (lambda x, w: (x, w.numpy()), TypeError, "frequencies: expected a torch.Tensor, got nd"),
        (lambda x, w: (x, w.float()), TypeError, "frequencies: expected torch.float64 like dist"),
        (
            lambda x, w: (x, w[1:]),
            ValueError,
            r"frequencies: expected shape \(num_radial=6,\), got",
        ),
        (lambda x, w: (x[None], w), ValueError, r"distances: expected shape \(num_samples,\), got"),
    ],
)
def test_refusals_of_compounds(change, kind, message):
    x, w = torch.rand(4, dtype=torch.float64), torch.ones(6, dtype=torch.float64)
    with pytest.raises(kind, match=f"^pyops.torch.dimenet_basis: {message}"):
        pt.dimenet_basis(*change(x, w))
    with pytest.raises(ValueError, match=r"^dimenet_basis: exponent: expected an integer from 1"):
        pt.dimenet_basis(x, w, exponent=0)


def test_memory_is_shared():
    x = torch.randn(5, 3)
    assert pt.relu(x).dtype is torch.float32
    assert pt.negative(x[::2].T).shape == (3, 3)
    assert torch.equal(pt.negative(x.expand(2, 5, 3)), -x.expand(2, 5, 3))


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (lambda: pt.tanh(np.zeros(3)), TypeError, "x: expected a torch.Tensor, got ndarray"),
        (lambda: pt.tanh(torch.zeros(3, device="meta")), ValueError, "on the CPU, got one on meta"),
        (lambda: pt.tanh(torch.zeros(3).to_sparse()), TypeError, "expected a dense tensor"),
        (lambda: pt.tanh(torch.zeros(3, dtype=torch.int)), TypeError, "got torch.int32"),
        (lambda: pt.tanh(), TypeError, r"expected arguments \(x\), got 0"),
        (lambda: pt.gno_conv(3), TypeError, "graph: expected pyops.Graph, got int"),
    ],
)
def test_refusals(wrong, kind, message):
    with pytest.raises(kind, match=f"pyops.torch.*{message}"):
        wrong()


def test_plain_graphs_are_refused_where_torch_compiles():
    example = Example("gno_conv")
    g = pyops.Graph(example.graph.src, example.graph.dst, example.graph.num_src)
    compiled = torch.compile(
        lambda *t: pt.gno_conv(g, *t, **example.options), fullgraph=True, backend="eager"
    )
    with pytest.raises(Exception, match=r"expected pyops\.torch\.Graph"):
        compiled(*example.tensors)


@pytest.mark.parametrize("ids", [None, [0, 1, 0]])
def test_plain_graphs_serve_subclasses_of_tensors(ids):
    class Special(torch.Tensor):
        pass

    graph = pyops.Graph.from_csc([0, 1, 2, 3], [2, 0, 1], 3, ids)
    x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    y = pt.aggregate(graph, x.as_subclass(Special))
    assert type(y) is Special
    assert torch.equal(y.as_subclass(torch.Tensor), pt.aggregate(graph, x))
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient.as_subclass(torch.Tensor), torch.ones_like(x))


def test_graphs_are_found_by_their_indices():
    from pyops.torch._graph import graph_of

    graph = pt.Graph([0, 1, 2], [1, 2, 0])
    sizes = (3, 3, 3)
    assert graph_of(graph._tensors, sizes) is graph
    copies = tuple(t if t is None else t.clone() for t in graph._tensors)
    other = graph_of(copies, sizes)
    assert other is not graph
    assert graph_of(tuple(t if t is None else t.clone() for t in copies), sizes) is other
    copies[0][0] = 2
    changed = graph_of(copies, sizes)
    assert changed is not other
    assert changed.src.tolist() == [2, 1, 2]


def test_third_derivatives_are_refused():
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(pt.exp(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="third derivatives"):
        second.sum().backward()


def test_torch_is_not_imported_unless_asked_for():
    import subprocess
    import sys

    code = "import sys, pyops; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
