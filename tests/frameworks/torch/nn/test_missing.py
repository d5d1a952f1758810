"""Names that `pyops.torch.nn` does not have."""

import re

import pytest

pytest.importorskip("torch")

import pyops.torch.nn
from pyops.torch.nn import _missing


@pytest.mark.parametrize("name", [*_missing.REPLACEMENTS, "ChebConv", "nothing"])
def test_import_says_what_to_use(name):
    """The error names the layers that exist, the call to use, and PyTorch Geometric."""
    with pytest.raises(ImportError) as caught:
        exec(f"from pyops.torch.nn import GATConv, {name}")
    text = str(caught.value)
    for word in "GATConv", "NNConv", f"got {name}", "torch_geometric":
        assert word in text
    assert _missing.REPLACEMENTS.get(name, "") in text
    with pytest.raises(AttributeError, match=re.escape(text)):
        getattr(pyops.torch.nn, name)
    assert not hasattr(pyops.torch.nn, name)


def test_replacements_exist():
    """No text names an operator or a layer that pyops does not have."""
    for name, text in _missing.REPLACEMENTS.items():
        assert not hasattr(pyops.torch.nn, name)
        for module, found in re.findall(r"pyops\.torch(\.nn)?\.([a-z]\w+)\(?", text):
            if found != "nn":
                assert hasattr(pyops.torch.nn if module else pyops.torch, found), text


def test_other_imports():
    """Modules are found as before, and private names have Python's own errors."""
    from pyops.torch.nn import gat_conv

    assert gat_conv.GATConv is pyops.torch.nn.GATConv
    with pytest.raises(ImportError, match="cannot import name '_nothing'"):
        from pyops.torch.nn import _nothing  # noqa: F401
    with pytest.raises(AttributeError, match="has no attribute '_nothing'"):
        pyops.torch.nn._nothing  # noqa: B018
