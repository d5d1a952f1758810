"""Optional arguments, and results that are computed only if requested."""

import itertools
import weakref

import numpy as np
import pytest

import pyops

from ..support.cases import EVERY, EVERY_VARIANT, PHASES, representative
from ..support.compare import assert_same

every_variant = pytest.mark.parametrize("case", EVERY_VARIANT, ids=str)
every_operator = pytest.mark.parametrize("name", EVERY)


def every(y):
    """Return the results of a call as a tuple, also if there is one."""
    return y if isinstance(y, tuple) else (y,)


@pytest.mark.parametrize("phase", ["backward", "double_backward"])
@every_variant
def test_wanted(case, phase):
    problem = case.problem()
    names = [*problem.op.signature.inputs] + problem.seeds * (phase == "double_backward")
    expected = dict(zip(names, problem.run(phase), strict=True))
    given = [name for name in names if problem.arrays[name] is not None]
    for number in range(len(given)):
        for wanted in itertools.combinations(given, number):
            some = [expected[name] if name in wanted else None for name in names]
            assert_same(problem.run(phase, wanted=wanted), some)


@pytest.mark.parametrize("collection", [tuple, list, set, frozenset, dict.fromkeys])
@every_operator
def test_collections_of_names(name, collection):
    problem = representative(name).problem()
    wanted = list(problem.op.signature.inputs)[:2]
    expected = problem.run("backward")
    assert_same(problem.run("backward", wanted=collection(wanted))[:2], expected[:2])


@pytest.mark.parametrize("phase", ["double_backward", "jvp"])
@every_variant
def test_no_cotangent_is_a_zero_cotangent(case, phase):
    problem = case.problem()
    names = [name for name in problem.names(phase) if name not in problem.op.signature.inputs]
    given = [name for name in names if problem.arrays[name] is not None]
    for number in range(1, len(given) + 1):
        for absent in itertools.combinations(given, number):
            zeros = {name: np.zeros_like(problem.arrays[name]) for name in absent}
            got = problem.having(**dict.fromkeys(absent)).run(phase)
            for a, b in zip(got, problem.having(**zeros).run(phase), strict=True):
                assert a is b is None or np.array_equal(a, b)


@every_operator
def test_no_gy_is_a_zero_gy(name):
    problem = representative(name).problem()
    for gradient in problem.having(**dict.fromkeys(problem.seeds)).run("backward"):
        assert not gradient.any()


@every_operator
def test_optional_inputs_may_be_left_out(name):
    inputs = [*EVERY[name].signature.inputs]
    case = next(
        case
        for case in reversed(EVERY_VARIANT)
        if case.op == name and inputs[len(inputs) - len(case.absent) :] == [*case.absent]
    )
    problem = case.problem()
    op, options = problem.op, problem.options
    gy = [problem.arrays[name] for name in problem.seeds]
    graph = [problem.graph] if problem.graph else []
    inputs = [a for a in problem.inputs if a is not None]
    h = [a for a in problem.cotangents if a is not None]
    full = {phase: problem.run(phase) for phase in PHASES}
    assert_same(every(op(*graph, *inputs, **options)), full["forward"])
    assert_same(op.backward(*graph, *inputs, *gy, **options), full["backward"])
    assert_same(op.double_backward(*graph, *inputs, *gy, *h, **options), full["double_backward"])
    assert_same(every(op.jvp(*graph, *inputs, *h, **options)), full["jvp"])


def by_name(problem, phase, first):
    """Return a call whose arguments, from the first on, are passed by name unless None."""
    names, inputs = problem.names(phase), len(problem.op.signature.inputs)
    if phase == "jvp":
        names[inputs:] = [f"t{name[1:]}" for name in names[inputs:]]
    assert len({*names}) == len(names)
    if problem.graph is not None:
        names.insert(0, "graph")
    held = dict(zip(names, problem.arguments(phase), strict=True))
    named = {name: held[name] for name in names[first:] if held[name] is not None}
    return [held[name] for name in names[:first]], named


@pytest.mark.parametrize("phase", PHASES)
@every_variant
def test_arguments_by_name(case, phase):
    problem = case.problem()
    function = problem.op if phase == "forward" else getattr(problem.op, phase)
    expected = problem.run(phase)
    for first in 0, 1, 2:
        given, named = by_name(problem, phase, first)
        assert_same(every(function(*given, **named, **problem.options)), expected)
    if phase == "forward":
        assert_same(every(problem.op.forward(*given, **named, **problem.options)[0]), expected)


@pytest.mark.parametrize("phase", PHASES)
@every_operator
def test_refused_arguments_by_name(name, phase):
    problem = representative(name).problem()
    op, options = problem.op, problem.options
    function = op if phase == "forward" else getattr(op, phase)
    given, named = by_name(problem, phase, 1)
    first, *_ = by_name(problem, phase, 0)[1]
    with pytest.raises(TypeError, match=f"{first}: expected one value, got it by position and by"):
        function(*given, **{first: given[0]}, **named, **options)
    for needed, i in op.signature.inputs.items():
        rest = {n: a for n, a in named.items() if n != needed}
        if rest and needed in named and not i.optional:
            with pytest.raises(TypeError, match=rf"{needed}: expected a NumPy array, got None"):
                function(*given, **rest, **options)
    if phase in ("double_backward", "jvp"):
        inputs = {n: a for n, a in named.items() if n in op.signature.positional or n[0] == "g"}
        if inputs:
            with pytest.raises(TypeError, match=r"expected one of .+ by name, got none"):
                function(*given, **inputs, **options)
    for seed in problem.seeds if "backward" in phase else ():
        rest = {n: a for n, a in named.items() if n != seed}
        if rest:
            with pytest.raises(TypeError, match=f"{seed}: expected by name, as .+ is, got none"):
                function(*given, **rest, **options)
        zero = problem.having(**{seed: None}).run(phase)
        assert_same(function(*given, **rest, **{seed: None}, **options), zero)


@every_variant
def test_saved(case):
    problem = case.problem()
    y, saved = problem.op.forward(*problem.arguments("forward"), **problem.options)
    assert_same(every(y), problem.run("forward"))
    for phase in "backward", "double_backward", "jvp":
        assert_same(problem.run(phase, saved=saved), problem.run(phase))


@every_operator
def test_defaults_of_options(name):
    problem = next(case for case in EVERY_VARIANT if case.op == name).problem()
    declared = problem.op.signature.options
    for option in declared.values():
        if option.choices:
            assert option.default == option.choices[0] == problem.options[option.name]
    sizes = {k: v for k, v in problem.options.items() if declared[k].is_size}
    y = problem.op(*problem.arguments("forward"), **sizes)
    assert_same(every(y), problem.run("forward"))


def test_plans_are_kept_for_arrays_alone():
    """Objects that compare equal to the shape of a cached array are not treated as arrays."""
    problem = representative("gno_aggregate").problem()
    problem.run("forward")
    graph, features, kappa = problem.arguments("forward")
    with pytest.raises(TypeError, match=r"features: expected a NumPy array, got tuple"):
        problem.op(graph, (features.shape, features.dtype.char), kappa)


@pytest.mark.parametrize("value", [True, 1.0, np.True_, np.float64(1)])
def test_plans_are_kept_for_integers_alone(value):
    """Objects that compare equal to a cached option are not accepted for it."""
    problem = representative("gno_conv").problem(hidden=1)
    problem.run("forward")
    with pytest.raises(TypeError, match="hidden: expected a positive integer, got"):
        problem.run("forward", hidden=value)


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("phase", PHASES)
@every_variant
def test_options_may_be_scalars_of_numpy(case, phase):
    problem, declared = case.problem(), EVERY[case.op].signature.options
    expected = problem.run(phase)
    kinds = {bool: np.bool_, int: np.int64, float: np.float64, str: Text}
    options = {n: v for n, v in problem.options.items() if n in declared}
    scalars = {n: kinds[declared[n].kind](v) for n, v in options.items()}
    plain = problem.op.checked(scalars)
    assert plain == problem.op.checked(options)
    assert all(type(v) in (bool, int, float, str) for v in plain.values())
    assert_same(problem.run(phase, **scalars), expected)


@pytest.mark.parametrize("flag", [True, False, np.True_, np.False_])
def test_flags_may_be_those_of_numpy(flag):
    x = np.arange(6.0).reshape(2, 3)
    out = np.ones((1, 3) if flag else 3)
    np.testing.assert_array_equal(
        pyops.sum(x, axis=np.int64(0), keepdims=flag, out=out, accumulate=flag),
        x.sum(0, keepdims=bool(flag)) + bool(flag),
    )


@pytest.mark.parametrize("phase", PHASES)
@every_operator
def test_plans_keep_no_arrays(name, phase):
    problem = representative(name).problem().map(np.copy)
    results = problem.run(phase)
    kept = [weakref.ref(a) for a in (*problem.arrays.values(), *results)]
    del problem, results
    assert not any(array() is not None for array in kept)
