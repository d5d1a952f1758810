"""Example that trains on forces with PyTorch, at a small size."""

import sys

import pytest

from ... import ROOT

torch = pytest.importorskip("torch")
for name in "ase", "tblite":
    pytest.importorskip(name)

EXAMPLES = ROOT / "examples"


@pytest.fixture
def torch_forces(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    import torch_forces

    return torch_forces


def test_torch_forces(torch_forces, tmp_path):
    """A few training steps beat zero forces on unseen molecules."""
    picture = tmp_path / "torch_forces.png"
    sizes = "--frames=2", "--steps=40", "--seconds=60"
    errors = torch_forces.main([*sizes, f"--output={picture}"])
    assert errors["DimeNet++"][0] < errors["zero"][0]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_compiled(torch_forces, tmp_path):
    picture = tmp_path / "torch_forces.png"
    sizes = "--frames=1", "--steps=3", "--seconds=60", "--compile"
    errors = torch_forces.main([*sizes, f"--output={picture}"])
    assert errors["DimeNet++"][0] < 2 * errors["zero"][0]
