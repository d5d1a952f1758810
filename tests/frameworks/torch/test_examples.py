"""Examples with PyTorch, at a small size."""

import sys

import pytest

from ... import ROOT

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")
pytest.importorskip("scipy")

EXAMPLES = ROOT / "examples"


def test_pyg_model(monkeypatch, capsys):
    """Both packages train equally."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent), prepend=":")
    import pyg_model

    difference, _, _ = pyg_model.main(["--nodes=500"])
    assert difference < 1e-5
    losses = [
        float(line.split()[-1]) for line in capsys.readouterr().out.splitlines() if " loss " in line
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
