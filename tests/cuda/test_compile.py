"""Every source compiles for the devices we know, in both precisions; a broken one does not."""

import pytest

from pyops.cuda._source import compose, kernels, sources, variants

from .nvrtc import cubin

ARCHITECTURES = "sm_80", "sm_90"
EVERY = [(name, variant) for name in sources() for variant in variants(name)]


def label(value):
    if isinstance(value, dict):
        return "-".join(f"{name}{number}" for name, number in value.items()) or "plain"
    return None


@pytest.mark.parametrize("kind", ["f", "d"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("source", "constants"), EVERY, ids=label)
def test_compiles(source, constants, architecture, kind):
    code = cubin(compose(source, kind, constants), architecture)
    for kernel in kernels(source):
        assert kernel.encode() in code


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("source", sources())
def test_broken_source_fails(source, architecture):
    text = compose(source, "f", next(variants(source)))
    broken = text.replace("threadIdx.x", "threadIdx.nowhere")
    assert broken != text
    with pytest.raises(RuntimeError, match="nowhere"):
        cubin(broken, architecture)


def test_unlisted_constants_are_refused():
    with pytest.raises(ValueError, match="no variant"):
        compose("neighbours", "f", {"LANES": 3})
