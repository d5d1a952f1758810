"""The example of a mesh, at a small size."""

import sys

import numpy as np
import pytest

from ... import ROOT

pytest.importorskip("torch")
pytest.importorskip("scipy")


@pytest.fixture
def mesh(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "examples"), *sys.path])
    import mesh

    return mesh


def test_mesh(mesh, tmp_path):
    """A few steps of training predict the flow better than its first frame and its mean do."""
    picture = tmp_path / "mesh.png"
    sizes = "--length=90", "--periods=3", "--warm-up=5", "--blocks=4", "--width=16", "--steps=400"
    errors = mesh.main([*sizes, f"--output={picture}"])
    own = errors.pop("MeshGraphNet")
    assert all(own < other for other in errors.values())
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_flow(mesh):
    """The solver keeps mass and momentum where nothing enters: a uniform flow stays as it is."""
    channel = mesh.Channel(40, 16, 0.0)
    flow = mesh.simulate(channel, 3, 4, 1)
    np.testing.assert_allclose(flow[:, 0], 0.1, atol=1e-12)
    np.testing.assert_allclose(flow[:, 1], 0, atol=1e-12)
