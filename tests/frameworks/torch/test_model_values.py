"""`pyops.models.save` refuses what would turn values of tensors into constants of a program."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from pyops.models import load, save  # noqa: E402

from .layer_cases import draw  # noqa: E402
from .test_models import Function, assert_equal, values  # noqa: E402

functional = torch.nn.functional


class Held(Function):
    """Model of a plain function with parameters of all kinds of shapes, in all kinds of places."""

    def __init__(self, function):
        super().__init__(function)
        self.number = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
        self.cube = torch.nn.Parameter(torch.ones(2, 3, 4).double())
        self.several = torch.nn.ParameterList([torch.nn.Parameter(draw(4))])
        self.named = torch.nn.ParameterDict({"one": torch.nn.Parameter(draw(4))})
        self.register_buffer("count", torch.tensor(3))
        self.plain = [self.several[0]]
        self.alias = self.number.detach()
        self.array = self.number.detach().numpy()
        self.constant = torch.tensor(2.0)


@torch.jit.script
def scripted(x: torch.Tensor):
    return 2 * x


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return 5 * gradient


NUMBER = "expected no number from the values of a tensor"
ATTRIBUTE = "expected no values of parameters but those that attributes of modules return"
UNKNOWN = "there is no such function"
AXES = r"expected one or two dimensions, .* of shape \(2, 3, 4\)"
REFUSED = {
    "math": (lambda m, x: x * math.exp(m.number), NUMBER),
    "math of an input": (lambda m, x: x * math.sqrt(x.sum()), NUMBER),
    "float": (lambda m, x: x * float(m.number), NUMBER),
    "float of an element": (lambda m, x: x * float(m.several[0][0]), NUMBER),
    "int": (lambda m, x: x * int(x.sum()), NUMBER),
    "range": (lambda m, x: x * len(range(m.count)), "count: expected real numbers or indices"),
    "complex": (lambda m, x: x * complex(m.number).real, NUMBER),
    "numpy": (lambda m, x: x * np.multiply(1.0, m.number), NUMBER),
    "array": (lambda m, x: x * np.asarray(m.number).item(), NUMBER),
    "new tensor": (lambda m, x: x * torch.tensor(m.number), f"tensor: {UNKNOWN}"),
    "new tensors": (lambda m, x: x * torch.tensor([m.number]), f"tensor: {UNKNOWN}"),
    "as_tensor": (lambda m, x: x * torch.as_tensor(m.number), f"as_tensor: {UNKNOWN}"),
    "item": (lambda m, x: x * m.number.item(), f"item: {UNKNOWN}"),
    "item of a dict": (lambda m, x: x * m.named["one"][0].item(), f"item: {UNKNOWN}"),
    "tolist": (lambda m, x: x * m.several[0].tolist()[0], f"tolist: {UNKNOWN}"),
    "detach": (lambda m, x: x * m.number.detach(), f"detach: {UNKNOWN}"),
    "data": (lambda m, x: x * m.number.data, f"getattr: {UNKNOWN}"),
    "branch": (lambda m, x: x if m.number > 0 else -x, f"gt: {UNKNOWN}"),
    "truth": (lambda m, x: x if m.number else -x, "expected no branch that depends on values"),
    "equality": (lambda m, x: x if m.number in (0.5, 1) else -x, f"eq: {UNKNOWN}"),
    "allclose": (lambda m, x: x if torch.allclose(x, x) else -x, f"allclose: {UNKNOWN}"),
    "maximum": (lambda m, x: x * max(m.number, 2), f"lt: {UNKNOWN}"),
    "requires_grad": (lambda m, x: x if x.requires_grad else -x, "requires_grad: expected no use"),
    "integer": (lambda m, x: x * int(m.count), "count: expected real numbers or indices"),
    "list": (lambda m, x: x * float(m.plain[0].sum()), rf"Tensor\.sum: {ATTRIBUTE}"),
    "_parameters": (lambda m, x: x * float(m._parameters["number"]), ATTRIBUTE),
    "parameters": (lambda m, x: x * sum(p.sum().item() for p in m.parameters()), ATTRIBUTE),
    "named_parameters": (lambda m, x: x * dict(m.named_parameters())["number"].item(), ATTRIBUTE),
    "buffers": (lambda m, x: x * next(iter(m.buffers())).tolist()[0], ATTRIBUTE),
    "state_dict": (lambda m, x: x * float(m.state_dict()["number"]), ATTRIBUTE),
    "alias": (lambda m, x: x * float(m.alias), ATTRIBUTE),
    "mean of a cube": (lambda m, x: x[:, :1] * m.cube.mean(-1).sum(), f"mean: {AXES}"),
    "sum of a cube": (lambda m, x: x * m.cube.sum(), f"sum: {AXES}"),
    "element of a cube": (lambda m, x: x + m.cube[0, 1], f"getitem: {AXES}"),
    "transposed cube": (lambda m, x: x + m.cube.transpose(0, 1).reshape(6, 4)[1], AXES),
    "product with a cube": (lambda m, x: x + (m.cube * m.shift).view(6, 4)[0], f"mul: {AXES}"),
    "list of cubes": (lambda m, x: x + torch.cat([m.cube, m.cube]).view(12, 4)[0], f"cat: {AXES}"),
    "module of a cube": (lambda m, x: x + torch.nn.ReLU()(m.cube).view(6, 4)[0], f"ReLU: {AXES}"),
    "cube of three": (lambda m, x: x + m.cube.flatten(0, 0)[0, 0], r"flatten: expected two dimens"),
    "sum in float32": (lambda m, x: x.sum(0, dtype=torch.float32), "dtype"),
    "softmax in float32": (lambda m, x: x.softmax(1, torch.float32), "softmax: dtype: expected"),
    "threshold": (lambda m, x: functional.softplus(x, 1.0, -1.0), "softplus: expected a beta"),
    "script": (lambda m, x: scripted(x), r"expected functions of Python, got one of torch\.jit"),
    "autograd.Function": (lambda m, x: Doubled.apply(x), ""),
    "row by a truth value": (lambda m, x: x[True, 0], "expected slices, integers and indices"),
}
"""Functions whose results would be constants, and what the error says beside the line."""


def saved(function, path):
    module = Held(lambda m, x, z, i: function(m, x)).double().eval()
    save(module, path, values(9))
    return module


@pytest.mark.parametrize("name", REFUSED)
def test_constants_are_refused(name, tmp_path):
    function, message = REFUSED[name]
    with pytest.raises(NotImplementedError, match=rf"test_model_values\.py:\d+: .*{message}"):
        saved(function, tmp_path / "file")
    assert not list(tmp_path.iterdir())


def test_script_modules_are_refused(tmp_path):
    model = torch.nn.Sequential(torch.jit.script(torch.nn.Linear(4, 4)))
    with pytest.raises(NotImplementedError, match="0: expected modules of Python, got a ScriptM"):
        save(model, tmp_path / "file", draw(3, 4).float())


def test_errors_name_the_module(tmp_path):
    inner = Held(lambda m, x, z, i: x * float(m.number)).double()

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList([inner])

        def forward(self, x, z, i):
            return self.layers[0](x, z, i)

    with pytest.raises(NotImplementedError, match=rf"\.py:\d+: layers\.0 \(Held\): {NUMBER}"):
        save(Outer(), tmp_path / "file", values(9))


HIDDEN = {
    "value": (lambda m, x: x * m.array.item(), "values of the model for other parameters"),
    "gradient": (lambda m, x: x * m.number, "number: expected the gradient of the model"),
}
"""Functions whose program equals the model for its parameters alone, or in values alone."""


@pytest.mark.parametrize("name", HIDDEN)
def test_other_parameters_are_compared(name, tmp_path):
    function, message = HIDDEN[name]
    module = Held(lambda m, x, z, i: function(m, x)).double()
    module.array = module.number.detach().numpy()
    if name == "gradient":
        module.number.register_hook(lambda gradient: 2 * gradient)
    before = {key: tensor.clone() for key, tensor in module.state_dict().items()}
    with pytest.raises(NotImplementedError, match=message):
        save(module, tmp_path / "file", values(9))
    for key, tensor in module.state_dict().items():
        torch.testing.assert_close(tensor, before[key], rtol=0, atol=0)


EQUAL = {
    "cube as a matrix": lambda m, x: x + m.cube.view(6, 4)[2] + m.cube.reshape(-1, 4)[5],
    "flat cube": lambda m, x: x * m.cube.flatten()[:4] + m.cube.flatten(1)[1, 3],
    "folded cube": lambda m, x: x @ torch.flatten(m.cube, 0, 1)[:4].T,
    "sizes of a cube": lambda m, x: x * m.cube.shape[1] + m.cube.size(2) * m.cube.dim(),
    "number": lambda m, x: x * m.number**2 + m.number.exp(),
    "number as a vector": lambda m, x: x * torch.cat([m.number.view(1), m.number.unsqueeze(0)])[1],
    "element": lambda m, x: x * m.weight[0, 1] + x[:, 0:1] * m.shift[2],
    "list": lambda m, x: x * m.several[0] + m.plain[0],
    "dict": lambda m, x: x * m.named["one"],
    "constant": lambda m, x: x * float(m.constant),
    "same order": lambda m, x: x @ m.weight.permute(1, 0) @ m.weight.permute((0, 1)),
    "flat": lambda m, x: x.flatten(1) + x.flatten(0, 0) * x.flatten(-2).sum(),
}


@pytest.mark.parametrize("name", EQUAL)
def test_shapes_are_those_of_torch(name, tmp_path):
    path = tmp_path / "file"
    module = saved(EQUAL[name], path)
    for count in 9, 6:
        assert_equal(path, module, values(count))


POINTS = torch.tensor([-41.0, -20, -5, -1, -0.5, 0, 0.5, 1, 2, 5, 19, 20, 20.5, 21, 25, 40, 41, 90])
THRESHOLDS = {
    "clamp": lambda x: torch.clamp(x, -1, 2),
    "clamp min": lambda x: x.clamp(min=0.5),
    "clamp max": lambda x: torch.clip(x, max=20.0),
    "clamp to a point": lambda x: x.clamp(2.0, 2.0),
    "empty clamp": lambda x: x.clamp(2.0, 1.0),
    "softplus": functional.softplus,
    "softplus beta": lambda x: functional.softplus(x, 2.0),
    "low threshold": lambda x: functional.softplus(x, 1.0, 5.0),
    "high threshold": lambda x: functional.softplus(x, 0.5, 40.0),
    "zero threshold": lambda x: functional.softplus(x, 1.0, 0.0),
    "relu": torch.relu,
    "abs": torch.abs,
    "hardsigmoid": functional.hardsigmoid,
    "amax": lambda x: (x * x).amax(0) * x,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", THRESHOLDS)
def test_thresholds_are_those_of_torch(name, dtype, tmp_path):
    """Values and slopes at the thresholds, below and above."""

    class Plain(torch.nn.Module):
        def forward(self, x):
            return THRESHOLDS[name](x)

    x = POINTS.to(dtype)
    save(Plain(), tmp_path / "file", x)
    found = load(tmp_path / "file", dtype=x.numpy().dtype)
    leaf = x.clone().requires_grad_()
    y = Plain()(leaf)
    (slope,) = torch.autograd.grad(y.sum(), leaf)
    tolerance = {"rtol": 4 * torch.finfo(dtype).eps, "atol": torch.finfo(dtype).tiny}
    if name == "hardsigmoid":
        tolerance["rtol"] = 1e-7  # as torch rounds 1/6 to float32
    np.testing.assert_allclose(found(x.numpy()), y.detach().numpy(), **tolerance)
    own = found.backward(x.numpy(), np.ones_like(x.numpy()))["x"]
    np.testing.assert_allclose(own, slope.numpy(), **tolerance)


def test_bounds_that_are_tensors(tmp_path):
    """At a bound the slope by it is 0."""

    class Bounded(torch.nn.Module):
        def forward(self, x, low, high):
            return torch.clamp(x, low, high)

    given = [torch.tensor(one) for one in ([1.0, 2, 3, 5, 9], [2.0, 2, 2, 2, 2], [5.0, 5, 5, 5, 5])]
    save(Bounded(), tmp_path / "file", tuple(given))
    found = load(tmp_path / "file", dtype=np.float32)
    leaves = [one.clone().requires_grad_() for one in given]
    y = Bounded()(*leaves)
    expected = torch.autograd.grad(y.sum(), leaves)
    arrays = [one.numpy() for one in given]
    np.testing.assert_array_equal(found(*arrays), y.detach().numpy())
    own = found.backward(*arrays, np.ones(5, np.float32))
    for name, gradient in zip(("x", "low", "high"), expected, strict=True):
        np.testing.assert_array_equal(own[name], gradient.numpy(), err_msg=name)


def test_state_that_the_model_sets_is_restored(tmp_path):
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))
            self.seen = None

        def forward(self, x):
            self.calls = self.calls + 1
            self.seen = x if self.seen is None else self.seen
            return self.seen * 2

    model = Counting()
    buffer = model.calls
    save(model, tmp_path / "file", torch.ones(3))
    assert model.calls is buffer
    assert model.calls.item() == 0
    assert model.seen is None
    np.testing.assert_array_equal(load(tmp_path / "file")(np.full(2, 3, np.float32)), 6)


def test_rows_of_another_value(tmp_path):
    """A number of rows is that of the value itself, not one that the example has by chance."""
    linear = functional.linear
    module = Function(lambda m, x, z, i: linear(z, m.weight).view(x.shape[0], -1)).double()
    with pytest.raises(NotImplementedError, match="reshape: expected one or two lengths"):
        save(module, tmp_path / "file", values(9))
    module = Function(lambda m, x, z, i: torch.relu(x * m.weight[0]).view(x.shape[0], -1)).double()
    save(module, tmp_path / "file", values(9))
    assert_equal(tmp_path / "file", module, values(6))
