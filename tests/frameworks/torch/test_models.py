"""Models that are saved from PyTorch equal it when they are loaded without.

Tables of models make up most of the lines, so this is one module.
"""

import itertools
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import pyops  # noqa: E402
import pyops.torch as pt  # noqa: E402
from pyops.models import load, save  # noqa: E402
from pyops.torch import nn  # noqa: E402
from pyops.torch._lowering import lower  # noqa: E402

from .layer_cases import CASES, LARGER, SMALLER, case, dimenet, draw, molecule, network  # noqa: E402

functional = torch.nn.functional
UNKNOWN = "there is no such function"
REFUSED = {
    "GATConv weights": r"layer \(GATConv\): return_attention_weights: expected None",
    "GATConv max": r"layer \(GATConv\): aggr: expected add, sum or mean, got max",
    "GCNConv mul": r"layer \(GCNConv\): aggr: expected one that commutes with normalisation",
    **{f"CuGraph{kind}Conv": UNKNOWN for kind in ("SAGE", "GAT", "RGCN")},
    "RGCNConv rows": "must be Number, not Rows",
    "NeighborSearch": UNKNOWN,
    "softmax": UNKNOWN,
    "softmax wide": UNKNOWN,
    "softmax offsets": "softmax: expected an index, and the rows of a tensor as the groups",
    **{f"scatter{kind}": UNKNOWN for kind in ("", " wide", " mean", " max")},
    **{f"segment{kind}": UNKNOWN for kind in ("", " wide", " max")},
    **{
        f"IntegralTransform {kind}": "expected the edges that are an input of the model"
        for kind in ("linear", "linear_kernelonly", "nonlinear", "nonlinear_kernelonly")
    },
}
"""Cases that call functions by other names than those of their modules, or have no program."""
OFFSETS = "GATv2Conv offsets", "SAGEConv offsets"
WEIGHTS = "GCNConv weights"
"""Gradients by weights of several self loops of a node are not torch's, which are not defined."""


def flat(inputs):
    for one in inputs:
        yield from one if isinstance(one, tuple) else [one]


def by_torch(module, inputs, gy=None):
    """Return the results of a model, and gradients by real inputs and parameters."""
    leaves = [tuple(map(leaf, one)) if isinstance(one, tuple) else leaf(one) for one in inputs]
    y = module(*leaves)
    gy = torch.ones_like(y) if gy is None else gy
    wanted = [one for one in flat(leaves) if isinstance(one, torch.Tensor) and one.requires_grad]
    wanted += module.parameters()
    found = torch.autograd.grad(y, wanted, gy, allow_unused=True)
    zeros = [torch.zeros_like(w) if g is None else g for g, w in zip(found, wanted, strict=True)]
    return y.detach().numpy(), [gradient.numpy() for gradient in zeros]


def leaf(value):
    real = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() <= 2
    return value.clone().requires_grad_() if real else value


def single(value):
    """Return tensors in float32."""
    if isinstance(value, tuple):
        return tuple(map(single, value))
    real = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.float() if real else value


def assert_equal(path, module, inputs, tolerance=1e-12, skip=()):
    """Assert that a loaded model has the values and gradients of torch."""
    lowered = lower(module, inputs, None)
    model, examples = load(path, lowered.dtype), lowered.examples
    y, gradients = by_torch(module, inputs)
    found = model(*examples)
    scale = max(1.0, np.abs(y).max(initial=0))
    np.testing.assert_allclose(found, y, rtol=0, atol=tolerance * scale)
    own = model.backward(*examples, np.ones_like(y))
    names = [one.name for one in model.inputs if one.kind == "real" and one.name != "offsets"]
    names += [name for name, _ in module.named_parameters()]
    for name, expected in zip(names, gradients, strict=True):
        if name not in skip:
            scale = max(1.0, np.abs(expected).max(initial=0))
            np.testing.assert_allclose(
                own[name], expected, rtol=0, atol=10 * tolerance * scale, err_msg=name
            )


@pytest.mark.parametrize("name", [n for n in CASES if n not in REFUSED and n not in OFFSETS])
def test_layers(name, tmp_path):
    """A file that is written for inputs of one size is right for others."""
    module, larger, smaller = case(name)
    path = tmp_path / "model.safetensors"
    save(module.eval(), path, larger)
    for inputs in larger, smaller:
        assert_equal(path, module, inputs, skip=["given_3"] if name == WEIGHTS else [])
    if name == WEIGHTS:
        x, edges, weight = larger
        once = torch.unique(edges, dim=1)
        assert_equal(path, module, (x, once, weight[: once.shape[1]]))
    save(module.float(), path, single(larger))
    assert_equal(path, module, single(smaller), 1e-5, ["given_3"] if name == WEIGHTS else [])


@pytest.mark.parametrize("name", REFUSED)
def test_refused_layers(name, tmp_path):
    module, larger, _ = case(name)
    with pytest.raises(NotImplementedError, match=r"layer_cases\.py:\d+: .*" + REFUSED[name]):
        save(module.eval(), tmp_path / "file", larger)
    assert not list(tmp_path.iterdir())


class Function(torch.nn.Module):
    """Model of a plain function."""

    def __init__(self, function):
        super().__init__()
        self.weight = torch.nn.Parameter(draw(3, 4) - 0.5)
        self.register_buffer("shift", draw(4))
        self.function = function

    def forward(self, x, z, index):
        return self.function(self, x, z, index)


def rows(name, *given, **options):
    """Return a function of x and the weight by the name of one of torch."""
    return lambda m, x, z, i: getattr(torch, name)(x - m.shift, *given, **options)


FUNCTIONS = {
    **{name: rows(name) for name in ("sin", "cos", "exp", "tanh", "sigmoid", "relu", "erf")},
    **{name: rows(name) for name in ("abs", "neg", "square", "sinh", "cosh", "atan", "sum")},
    **{name: rows(name, dim=1) for name in ("mean", "amax", "softmax", "log_softmax")},
    "keepdim": rows("sum", dim=0, keepdim=True),
    "methods": lambda m, x, z, i: x.exp().log().sqrt().reciprocal().clamp(min=0.5).t(),
    "arithmetic": lambda m, x, z, i: (1 - 2 * x) / (x * z + 3) - z**2 + (x**3 - x**0.5) / 2,
    "power": lambda m, x, z, i: (x + 0.1) ** 1.7 + 2.0**z,
    "activations": lambda m, x, z, i: (
        functional.silu(x) + functional.gelu(z) + functional.elu(-x, 0.5) + functional.softplus(x)
    ),
    "leaky_relu": lambda m, x, z, i: functional.leaky_relu(x - 0.5, 0.1, inplace=True),
    "two operands": lambda m, x, z, i: torch.maximum(x, z) - torch.minimum(x, m.shift),
    "cat": lambda m, x, z, i: torch.cat([x, z, x * z], dim=-1),
    "cat of rows": lambda m, x, z, i: torch.cat((x, z)),
    "matrices": lambda m, x, z, i: x @ m.weight.T + functional.linear(z, m.weight),
    "product of parameters": lambda m, x, z, i: x @ (m.weight.t() @ m.weight),
    "slices": lambda m, x, z, i: x[:, 1:3] * z[:, -2:] + x[:, 0:1] + z[:, [3][0]].unsqueeze(1),
    "rows": lambda m, x, z, i: x[1:] - z[:4][0],
    "chunks": lambda m, x, z, i: torch.add(*x.chunk(2, dim=1)) * z.split([1, 2, 1], dim=1)[1],
    "shapes": lambda m, x, z, i: (
        x.reshape(x.shape[0], 4).view(-1, 2).sum(1).view(x.size(0), -1) + z[:, None, ...].dim()
        if x.dim() == 1
        else x.view(x.shape[0], -1).flatten().reshape(-1, 4) * x.shape[1]
    ),
    "gather": lambda m, x, z, i: x[i] + torch.index_select(z, 0, i) + functional.embedding(i, x),
    "scatter": lambda m, x, z, i: nn.scatter(x, i) + nn.scatter(z, i, 0, None, "mean"),
    "scatter max": lambda m, x, z, i: pt.nn.scatter(x, i, dim_size=z.shape[0], reduce="max"),
    "group softmax": lambda m, x, z, i: nn.softmax(x, i, num_nodes=x.size(0)) * z,
    "normalize": lambda m, x, z, i: functional.normalize(x, dim=1),
    "layer_norm": lambda m, x, z, i: functional.layer_norm(x, (4,), m.shift, None, 1e-3),
    "dropout": lambda m, x, z, i: functional.dropout(x, 0.5, m.training),
    "operator": lambda m, x, z, i: pt.silu(pt.multiply(x, z)),
    "constants": lambda m, x, z, i: torch.zeros_like(x) + torch.ones_like(z) * x,
}
SIZES = {9: torch.tensor([0, 3, 3, 1, 8, 5, 7, 2, 8]), 6: torch.tensor([5, 0, 2, 2, 4, 1])}


def values(count):
    return draw(count, 4), draw(count, 4).flip(0), SIZES[count]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name, tmp_path):
    module = Function(FUNCTIONS[name]).double().eval()
    path = tmp_path / "model.safetensors"
    save(module, path, values(9))
    for count in SIZES:
        assert_equal(path, module, values(count))


CALLS = itertools.count(1)


def refused(function):
    return Function(function).double().eval()


NOT_FUNCTIONS = {
    "unknown": (lambda m, x, z, i: torch.linalg.svd(x), "linalg_svd: there is no such function"),
    "branch": (lambda m, x, z, i: x if x.sum() > 0 else z, "gt: there is no such function"),
    "rows": (lambda m, x, z, i: x if x.shape[0] > 3 else z, "no arithmetic or comparison with a"),
    "loop": (lambda m, x, z, i: sum(x), "expected no loop over the rows"),
    "constant": (lambda m, x, z, i: x + torch.ones(4).double(), "expected tensors of the state_di"),
    "three axes": (lambda m, x, z, i: x.view(-1, 2, 2).sum(1), "reshape: expected one or two"),
    "in place": (lambda m, x, z, i: x.add_(1), "add_: there is no such function"),
    "option": (
        lambda m, x, z, i: torch.add(x, z, alpha=2),
        "add: expected 2 operands, got 2 and al",
    ),
    "argmax": (lambda m, x, z, i: torch.max(x, dim=1)[0], "max along a dimension returns indices"),
    "index": (lambda m, x, z, i: i, "expected a tensor or a tuple of tensors as the result"),
    "training": (lambda m, x, z, i: functional.dropout(x), "dropout: expected training=False"),
    "tanh": (lambda m, x, z, i: functional.gelu(x, approximate="tanh"), "approximate: expected"),
    "random": (lambda m, x, z, i: torch.rand_like(x), "rand_like: there is no such function"),
    "negative row": (lambda m, x, z, i: x[-1], "expected a row counted from the first, got -1"),
    "state": (
        lambda m, x, z, i: x * next(CALLS),
        "expected the values of the model, the program diff",
    ),
}


@pytest.mark.parametrize("name", NOT_FUNCTIONS)
def test_refused_functions(name, tmp_path):
    function, message = NOT_FUNCTIONS[name]
    place = "" if name in ("index", "state") else r".*test_models\.py:\d+: "
    with pytest.raises(NotImplementedError, match=f"pyops.models.save: {place}.*{message}"):
        save(refused(function), tmp_path / "file", values(9))


MODULES = {
    "training": (torch.nn.Dropout(), "dropout: expected training=False"),
    "unknown": (torch.nn.PReLU(), r"PReLU\): there is no such module"),
    "batch": (torch.nn.BatchNorm1d(4), r"BatchNorm1d\): expected training=False"),
    "statistics": (torch.nn.BatchNorm1d(4, track_running_stats=False), "track_running_stats: exp"),
    "lazy": (torch.nn.LazyLinear(3), "expected a width"),
    "half": (torch.nn.Linear(4, 4).half(), "expected float32 or float64, got torch.float16"),
}


@pytest.mark.parametrize("name", MODULES)
def test_refused_modules(name, tmp_path):
    module, message = MODULES[name]
    model = torch.nn.Sequential(torch.nn.Identity(), module)
    x = draw(5, 4)
    x = x.half() if name == "half" else x if name == "training" else x.float()
    with pytest.raises(NotImplementedError, match=message):
        save(model, tmp_path / "file", x)


def without_gradients(m, x, z, i):
    with torch.no_grad():
        y = x * m.shift
    return y + x


IGNORED = {
    "in place": (lambda m, x, z, i: x + functional.relu(x, inplace=True), "further use of a value"),
    "view": (lambda m, x, z, i: x + functional.relu(x[:, :2], inplace=True).sum(), "further use"),
    "no_grad": (without_gradients, "expected no torch.no_grad"),
    "columns": (lambda m, x, z, i: x / x.t().shape[1], "expected real tensors and numbers"),
    "last column": (lambda m, x, z, i: x + x.t()[:, -1], "columns whose number"),
    "chunks": (lambda m, x, z, i: x.t().chunk(2, dim=1)[1].sum() + x, "columns whose number"),
    "too many rows": (lambda m, x, z, i: x[:1000].sum(0), "expected 0 to 9 in order"),
}
"""Functions of programs that would equal the model for the example alone."""


@pytest.mark.parametrize("name", IGNORED)
def test_what_examples_hide_is_refused(name, tmp_path):
    function, message = IGNORED[name]
    with pytest.raises(NotImplementedError, match=message):
        save(Function(function).double(), tmp_path / "file", values(9))


def test_padding_has_no_gradient(tmp_path):
    model = torch.nn.Embedding(5, 3, padding_idx=1).double()
    z = torch.tensor([0, 1, 1, 4])
    save(model, tmp_path / "file", z)
    assert_equal(tmp_path / "file", model, (z,), 1e-12)
    model = torch.nn.Embedding(5, 3, scale_grad_by_freq=True)
    with pytest.raises(NotImplementedError, match="expected no max_norm"):
        save(model, tmp_path / "file", z)


def test_isinstance_of_tensors(tmp_path):
    def weighted(m, x, z, i):
        m.kept = x  # asks whether it is a parameter or a buffer
        return x * m.shift if isinstance(x, torch.Tensor) and torch.is_tensor(z) else x

    model = Function(weighted).double()
    torch.nn.init.ones_(model.shift)
    save(model, tmp_path / "file", values(9))
    assert [step.call for step in load(tmp_path / "file")._program.steps] == ["multiply"]


def test_hooks_are_refused(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    model[0].register_forward_hook(lambda module, given, y: 2 * y)
    with pytest.raises(NotImplementedError, match=r"0 \(Linear\): expected no hooks"):
        save(model, tmp_path / "file", draw(5, 4).float())


def sequential():
    """Return a model of all plain modules."""
    activations = [torch.nn.ReLU(), torch.nn.SiLU(), torch.nn.ELU(0.5), torch.nn.Tanh()]
    activations += [
        torch.nn.LeakyReLU(0.1),
        torch.nn.GELU(),
        torch.nn.Softplus(),
        torch.nn.Dropout(),
    ]
    activations += [torch.nn.Sigmoid(), torch.nn.Hardsigmoid(), torch.nn.Softmax(dim=1)]
    layers = [torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 6, bias=False)]
    return torch.nn.Sequential(*layers, *activations, torch.nn.LayerNorm(6), torch.nn.Identity())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_modules(dtype, tmp_path):
    torch.manual_seed(0)
    model = sequential().to(dtype)
    for _ in range(3):
        model(draw(8, 4).to(dtype))  # sets the running statistics
    path = tmp_path / "model.safetensors"
    x = draw(6, 4).to(dtype)
    save(model.eval(), path, x)
    assert_equal(path, model, (x,), 1e-12 if dtype is torch.float64 else 1e-5)


class Attention(torch.nn.Module):
    """Network of two attention layers, with shared weights and a buffer."""

    def __init__(self):
        super().__init__()
        self.cutoff, self.kind = 2.5, "attention"
        self.first = nn.GATConv(4, 3, heads=2, edge_dim=3, fill_value=0.5)
        self.others = torch.nn.ModuleList([nn.GATv2Conv(6, 6, share_weights=True, aggr="mean")])
        self.embedding = torch.nn.Embedding(5, 4)
        self.out = torch.nn.ModuleDict({"last": torch.nn.Linear(6, 2)})

    def forward(self, kinds, edge_index, edge_attr):
        h = torch.relu(self.first(self.embedding(kinds), edge_index, edge_attr))
        for layer in self.others:
            h = functional.elu(layer(h, edge_index)) + h
        return self.out["last"](h), h.mean(dim=0)


def attention_inputs(count=7):
    places = torch.arange(3 * count)
    edges = torch.stack([places % count, (places * places) % count])
    return torch.arange(count) % 5, edges, draw(3 * count, 3)


def trained(model, inputs, steps=3):
    """Return a model after a few steps of training."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        y = model(*inputs)
        (y[0] if isinstance(y, tuple) else y).square().mean().backward()
        optimizer.step()
    return model.eval()


def test_round_trip(tmp_path):
    """The file has the state_dict, also for PyTorch, and hyperparameters; it is written again."""
    torch.manual_seed(0)
    model = trained(Attention().double(), attention_inputs())
    path = tmp_path / "model.safetensors"
    save(model, path, attention_inputs(), hyperparameters={"unit": "eV"})
    found = load(path)
    expected = {"cutoff": 2.5, "kind": "attention", "unit": "eV"}
    assert found.hyperparameters == expected
    assert [(one.name, one.kind) for one in found.inputs] == [
        ("kinds", "index"),
        ("edge_index", "graph"),
        ("edge_attr", "real"),
    ]
    kinds, edges, features = (one.numpy() for one in attention_inputs())
    y, mean = found(kinds, edges, features)
    for result, torchs in zip((y, mean), model(*attention_inputs()), strict=True):
        np.testing.assert_allclose(result, torchs.detach().numpy(), atol=1e-14)
    for parameter in found.parameters.values():
        parameter += 0.1
    found.save(path)
    safetensors = pytest.importorskip("safetensors.torch")
    other = Attention().double().eval()
    state = safetensors.load_file(path)
    assert other.load_state_dict(state).missing_keys == []
    np.testing.assert_allclose(
        other(*attention_inputs())[0].detach(), found(kinds, edges, features)[0], atol=1e-12
    )
    torch.testing.assert_close(state["others.0.lin_r.weight"], state["others.0.lin_l.weight"])


class Darcy(torch.nn.Module):
    """Graph neural operator, that of the demo for Darcy flow."""

    def __init__(self, width=6, layers=3):
        super().__init__()
        self.lift = torch.nn.Linear(3, width)
        self.layers = torch.nn.ModuleList(
            nn.NNConv(width, width, network(6, width * width), aggr="mean") for _ in range(layers)
        )
        self.project = torch.nn.Linear(width, 1)

    def forward(self, fields, edge_index, coords):
        h = self.lift(fields)
        for layer in self.layers:
            h = functional.gelu(layer(h, edge_index, coords))
        return self.project(h)[:, 0]


class Operator(torch.nn.Module):
    """Neural operator from points to queries."""

    def __init__(self):
        super().__init__()
        self.layer = nn.GNOBlock(
            4, 4, 2, 0.5, weighting_fn=lambda s: 1 - s, use_open3d_neighbor_search=False
        )

    def forward(self, points, queries, f):
        return torch.tanh(self.layer(points, queries, f))


class Cascade(torch.nn.Module):
    """Two layers on the same neighbours, and one on others."""

    def __init__(self):
        super().__init__()
        options = {"use_open3d_neighbor_search": False, "channel_mlp_layers": [5]}
        self.layers = torch.nn.ModuleList(nn.GNOBlock(4, 4, 2, 0.6, **options) for _ in range(2))
        self.last = nn.GNOBlock(4, 4, 2, 0.8, reduction="mean", **options)

    def forward(self, points, queries, f):
        for layer in self.layers:
            f = layer(points, points, f)
        return self.last(points, queries, f)


WHOLE = {
    "Darcy flow": (Darcy, lambda n: (draw(n, 3), attention_inputs(n)[1], draw(3 * n, 6))),
    "attention": (Attention, attention_inputs),
    "operator": (Operator, lambda n: (draw(n, 2), draw(n - 2, 2).flip(0), draw(n, 4))),
    "cascade": (Cascade, lambda n: (draw(n, 2), draw(n - 2, 2).flip(0), draw(n, 4))),
    "mesh": (
        lambda: nn.MeshGraphNetProcessor(2, 5, 5, do_concat_trick=True),
        lambda n: (draw(n, 5), draw(3 * n, 5), attention_inputs(n)[1]),
    ),
    "DimeNet++": (dimenet, lambda n: molecule((n,))),
}


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_trained_models(name, dtype, tmp_path):
    torch.manual_seed(0)
    make, given = WHOLE[name]

    def inputs(count):
        return [x.to(dtype) if x.is_floating_point() else x for x in given(count)]

    model = trained(make().to(dtype), inputs(7))
    path = tmp_path / "model.safetensors"
    save(model, path, inputs(7))
    if name != "attention":
        for count in 7, 6:
            assert_equal(path, model, inputs(count), 1e-12 if dtype is torch.float64 else 1e-5)


def test_searched_graphs(tmp_path):
    """Graphs come first, once for the same points and radius, which is a hyperparameter."""
    path = tmp_path / "model.safetensors"
    save(Cascade().double().eval(), path, WHOLE["cascade"][1](7))
    found = load(path)
    assert [one.name for one in found.inputs] == ["graph", "graph_2", "points", "queries", "f"]
    assert [one.num_src for one in found.inputs[:2]] == ["points", "points"]
    assert [one.num_dst for one in found.inputs[:2]] == ["points", "queries"]
    expected = {"layers.0.radius": 0.6, "layers.1.radius": 0.6, "last.radius": 0.8}
    assert found.hyperparameters == expected


def test_forces(tmp_path):
    """Forces, and the gradients of a loss on forces by all parameters."""
    torch.manual_seed(0)
    model = dimenet().double().eval()
    numbers, positions, batch = molecule(LARGER)
    path = tmp_path / "model.safetensors"
    save(model, path, (numbers, positions, batch))
    found = load(path)
    assert found.hyperparameters["cutoff"] == 2.5
    positions.requires_grad_()
    y = model(numbers, positions, batch)
    (gradient,) = torch.autograd.grad(y.sum(), positions, create_graph=True)
    target = draw(*positions.shape)
    loss = (gradient - target).square().sum()
    expected = torch.autograd.grad(loss, [positions, *model.parameters()], allow_unused=True)
    pos = positions.detach().numpy()
    graph = pyops.radius_graph(pos, 2.5, batch=batch.numpy())[0]
    given = graph, numbers.numpy(), pos, batch.numpy(), np.ones(y.shape)
    forces = found.backward(*given, wanted=["pos"])["pos"]
    np.testing.assert_allclose(forces, gradient.detach().numpy(), atol=1e-12)
    h = 2 * (forces - target.numpy())
    second = found.double_backward(*given, cotangents={"pos": h})
    for name, one in zip(["pos", *dict(model.named_parameters())], expected, strict=True):
        one = torch.zeros(found.parameters[name].shape) if one is None else one
        scale = max(1.0, float(one.abs().max()))
        np.testing.assert_allclose(second[name], one.numpy(), atol=1e-11 * scale, err_msg=name)


def test_packed_graphs(tmp_path):
    """Packed graphs are inputs, too, and operators of `pyops.torch` are steps."""

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GATConv(4, 3, add_self_loops=False)

        def forward(self, x, graph):
            return self.layer(x, graph), pt.aggregate(graph, x, reduce="max")

    model = Net().double().eval()
    path = tmp_path / "model.safetensors"
    graph = pt.Graph(torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2, 0, 1]))
    save(model, path, {"graph": graph, "x": draw(3, 4)})
    found = load(path)
    for result, expected in zip(
        found(draw(3, 4).numpy(), graph), model(draw(3, 4), graph), strict=True
    ):
        np.testing.assert_allclose(result, expected.detach().numpy(), atol=1e-14)


@pytest.mark.parametrize(
    "kind", ["linear", "linear_kernelonly", "nonlinear", "nonlinear_kernelonly"]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_integral_transforms(kind, weighted, tmp_path):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            width = 8 if kind.startswith("nonlinear") else 4
            self.layer = nn.IntegralTransform(
                channel_mlp_layers=[width, 6, 4],
                transform_type=kind,
                weighting_fn=torch.exp if weighted else None,
            )

        def forward(self, y, neighbours, x, f, weights):
            return self.layer(y, neighbours, x, f, weights if weighted else None)

    def inputs(sizes):
        _, index, splits, x, f = CASES[f"IntegralTransform {kind}"][1](sizes)
        neighbours = {"neighbors_index": index, "neighbors_row_splits": splits}
        return draw(sizes[0], 2), neighbours, x, f, draw(sizes[0])

    model = Net().double().eval()
    path = tmp_path / "model.safetensors"
    save(model, path, inputs(LARGER))
    for sizes in LARGER, SMALLER:
        if weighted:
            assert_equal(path, model, inputs(sizes))
        else:
            found, examples = load(path), lower(model, inputs(sizes), None).examples
            expected = model(*inputs(sizes)).detach().numpy()
            np.testing.assert_allclose(found(*examples), expected, atol=1e-13)


def test_aggregations(tmp_path):
    """Those of PyTorch Geometric that the operators compute."""
    aggr = pytest.importorskip("torch_geometric.nn").aggr

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.SAGEConv(4, 4, aggr=aggr.SoftmaxAggregation(t=0.5))
            self.second = nn.GraphConv(4, 4, aggr="var", flow="target_to_source")

        def forward(self, x, edges):
            return self.second(self.first(x, edges), edges)

    model = Net().double().eval()
    path = tmp_path / "model.safetensors"
    _, edges, _ = attention_inputs()
    save(model, path, (draw(7, 4), edges))
    assert_equal(path, model, (draw(7, 4), edges))


def test_arguments_by_name(tmp_path):
    """Arguments that are left out have their defaults, and None is no input."""

    class Net(torch.nn.Module):
        def forward(self, x, scale=2.0, shift=None, other=None, *, factor=3.0):
            x = x * scale * factor
            return x if other is None else x + other

    path = tmp_path / "model.safetensors"
    save(Net(), path, {"x": torch.ones(3, 2).double(), "other": torch.ones(2).double()})
    found = load(path)
    assert [one.name for one in found.inputs] == ["x", "other"]
    np.testing.assert_array_equal(found(np.ones((4, 2)), np.ones(2)), 7.0)
    with pytest.raises(TypeError, match="inputs: expected arguments by position, got factor"):
        save(Net(), path, {"x": torch.ones(3, 2).double(), "factor": 1.0})


class Packed(torch.nn.Module):
    """Operators on blocks that the model packs."""

    def __init__(self):
        super().__init__()
        self.kernel, self.norm = network(3, 16), torch.nn.LayerNorm(4)
        self.source, self.target = (torch.nn.Parameter(draw(2, 2)) for _ in range(2))
        self.edge, self.basis = network(9, 4), torch.nn.Parameter(draw(4, 3))

    def forward(self, x, graph, features):
        first, _, last = self.kernel
        block = pyops.blocks.pack_gno(first.weight, first.bias, last.weight, last.bias)
        h = pt.gno_conv(graph, x, features, block, hidden=5)
        scores = pyops.blocks.pack_gat(self.source, a_dst=self.target)
        h = pt.gat(graph, h, h, scores, heads=2) + x
        first, _, last = self.edge
        linears = [first.weight, last.weight], [first.bias, last.bias]
        norm = self.norm.weight, self.norm.bias
        block = pyops.blocks.pack_edge_network(*linears, *norm, src_width=4, dst_width=2)
        h = pt.edge_network(graph, h, block, x[:, :2], features, hidden=5, norm="layer")
        return pt.ono_encode(h, pyops.blocks.pack_basis(self.basis))


def test_packed_parameters(tmp_path):
    model, path = Packed().double().eval(), tmp_path / "model.safetensors"
    src, dst = attention_inputs()[1]
    graph = pt.Graph(src, dst, 7)
    inputs = draw(7, 4), graph, draw(21, 3)
    save(model, path, inputs)
    assert_equal(path, model, inputs)


def test_pools(tmp_path):
    """Reductions of the nodes of each graph; other layers are replaced before."""
    geometric = pytest.importorskip("torch_geometric.nn")

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = geometric.GraphConv(4, 3)

        def forward(self, x, edges, batch):
            h = self.layer(x, edges)
            pools = geometric.global_add_pool(h, batch), geometric.global_mean_pool(h, batch)
            return torch.cat([*pools, geometric.global_mean_pool(h, None).abs() + pools[0]], 1)

    model, path = Net().double().eval(), tmp_path / "model.safetensors"
    inputs = draw(7, 4), attention_inputs()[1], torch.tensor([0, 0, 1, 1, 1, 2, 2])
    with pytest.raises(NotImplementedError, match=r"layer \(GraphConv\): expected layers that"):
        save(model, path, inputs)
    nn.convert(model)
    save(model, path, inputs)
    assert_equal(path, model, inputs)


WRONG = {
    "no module": (
        lambda: torch.relu,
        (draw(3, 4),),
        TypeError,
        "model: expected a torch.nn.Module",
    ),
    "too many": (lambda: torch.nn.ReLU(), (1, 2), TypeError, "inputs: expected the arguments"),
    "type": (
        lambda: torch.nn.Linear(4, 4),
        (draw(3, 4),),
        TypeError,
        "inputs: input: expected float32 like the model, got float64",
    ),
    "axes": (
        lambda: torch.nn.ReLU(),
        (draw(2, 2, 2),),
        TypeError,
        r"inputs: input: expected a vector or a matrix .* of shape \(2, 2, 2\)",
    ),
    "list": (lambda: torch.nn.ReLU(), ([1],), TypeError, "inputs: input: expected a dense tensor"),
    "edges": (
        lambda: torch.nn.ReLU(),
        (torch.ones(3, 2, dtype=int),),
        ValueError,
        r"inputs: input: expected edges of shape \(2, num_edges\) or a vector of indices",
    ),
}


def test_hyperparameters(tmp_path):
    """Attributes that are numbers or texts are stored, others are not."""
    model = torch.nn.Linear(2, 2)
    model.kind, model.limit, model.widths = "a", float("inf"), [1, 2]
    path = tmp_path / "model.safetensors"
    save(model, path, torch.ones(3, 2), hyperparameters={"cutoff": 2.5, "periodic": True})
    expected = {"in_features": 2, "out_features": 2, "kind": "a", "cutoff": 2.5, "periodic": True}
    assert load(path).hyperparameters == expected
    for wrong in [1], float("nan"), 2**70:
        with pytest.raises(ValueError, match="save: hyperparameters: a: expected a number, a text"):
            save(model, path, torch.ones(3, 2), hyperparameters={"a": wrong})


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments(case, tmp_path):
    make, inputs, kind, message = WRONG[case]
    with pytest.raises(kind, match=f"pyops.models.save: {message}"):
        save(make(), tmp_path / "file", inputs)


@pytest.mark.bare
def test_torch_is_not_imported(tmp_path):
    path = tmp_path / "model.safetensors"
    save(Darcy().double().eval(), path, WHOLE["Darcy flow"][1](7))
    code = (
        "import sys, numpy as np, pyops\n"
        f"model = pyops.models.load({str(path)!r})\n"
        "given = np.ones((3, 3)), np.array([[0, 1], [1, 2]]), np.ones((2, 6))\n"
        "gradients = model.backward(*given, np.ones(3))\n"
        "model.double_backward(*given, np.ones(3), cotangents={'coords': gradients['coords']})\n"
        "assert not {'torch', 'jax', 'safetensors'} & sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
