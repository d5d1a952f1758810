"""Replacement of the layers of PyTorch Geometric and PhysicsNeMo in a model."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ._messages import FLOWS, PARTS, REDUCTIONS, Messages
from ._missing import REPLACEMENTS
from .cf_conv import CFConv
from .cugraph_conv import CuGraphGATConv, CuGraphRGCNConv, CuGraphSAGEConv
from .edge_conv import EdgeConv
from .gat_conv import GATConv
from .gatv2_conv import GATv2Conv
from .gcn_conv import GCNConv
from .gin_conv import GINConv
from .graph_conv import GraphConv
from .mesh_graph_net import (
    MeshEdgeBlock,
    MeshGraphEdgeMLPConcat,
    MeshGraphEdgeMLPSum,
    MeshGraphMLP,
    MeshNodeBlock,
)
from .nn_conv import NNConv
from .pna_conv import PNAConv
from .rgcn_conv import RGCNConv
from .sage_conv import SAGEConv
from .transformer_conv import TransformerConv

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LAYERS: tuple[type[Messages], ...] = (
    GATConv,
    GATv2Conv,
    TransformerConv,
    NNConv,
    GCNConv,
    SAGEConv,
    GraphConv,
    GINConv,
    EdgeConv,
    RGCNConv,
    CFConv,
    PNAConv,
)
"""Layers whose originals have the same name in `torch_geometric.nn` or the module of SchNet."""
BLOCKS = {block.__name__: block for block in (MeshEdgeBlock, MeshNodeBlock)}
"""Blocks whose originals in `physicsnemo` have the same name."""
CUGRAPH: dict[str, type[Messages]] = {
    layer.__name__: layer for layer in (CuGraphSAGEConv, CuGraphGATConv, CuGraphRGCNConv)
}
"""Layers whose originals, which call pylibcugraphops, have the same name."""
_Module = TypeVar("_Module", bound=torch.nn.Module)
_CALLS = "forward", "edge_updater", "explain_message", *PARTS


@dataclass(frozen=True, repr=False)
class Conversion:
    """Report of `convert`: layers of the other packages by their names in the model."""

    swapped: Mapping[str, str]
    """Class of each layer that was swapped."""
    left: Mapping[str, str]
    """Reason for each layer that was not."""

    def __repr__(self) -> str:
        lines = []
        for what, found in (("swapped", self.swapped), ("left", self.left)):
            count = len(found)
            lines.append(f"{count} {'layer' if count == 1 else 'layers'} {what}")
            lines += [f"  {name}: {text}" for name, text in found.items()]
        return "\n".join(lines)


def convert(model: torch.nn.Module) -> Conversion:
    """Swap layers of PyTorch Geometric and PhysicsNeMo for those of this package, in place.

    Parameters, buffers, inner modules, hooks and training mode are the same objects before and
    after, so that an optimizer goes on; a module that is shared remains so. But blocks of
    PhysicsNeMo have their networks, ``edge_mlp`` and ``node_mlp``, swapped too. Results are equal
    up to rounding. Subclasses of layers remain as they are, as they may form messages of their own.

    Parameters
    ----------
    model : torch.nn.Module
        A module that contains layers of `torch_geometric.nn`, or ``MeshEdgeBlock`` and
        ``MeshNodeBlock`` of PhysicsNeMo's ``MeshGraphNet``, at any depth.

    Returns
    -------
    Conversion
        With the names and classes of the layers that were `swapped`, and the reasons for the
        message-passing layers that were `left`.

    Raises
    ------
    TypeError, ValueError
        If the model is no module, or is itself a layer, which nothing contains.

    Examples
    --------
    >>> from torch_geometric.nn import GAT
    >>> from pyops.torch.nn import convert
    >>> convert(GAT(8, 16, num_layers=2, heads=2))
    2 layers swapped
      convs.0: GATConv
      convs.1: GATConv
    0 layers left
    """
    caller = "pyops.torch.nn.convert"
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"{caller}: model: expected a torch.nn.Module, got {type(model).__name__}")
    swapped: dict[str, str] = {}
    left: dict[str, str] = {}
    kinds = _originals()
    if type(model) in kinds or _block_of(model) or _cugraph_of(model):
        raise ValueError(
            f"{caller}: model: expected a module that contains layers, got a layer: use "
            f"pyops.torch.nn.{type(model).__name__}, which loads its state_dict"
        )
    made: dict[torch.nn.Module, torch.nn.Module | str] = {}
    for parent, place, name in _places(model, "", set()):
        layer = parent._modules[place]
        if layer is None:
            continue
        if layer not in made:
            if block := _block_of(layer):
                made[layer] = _swapped_block(layer, block)
            elif cugraph := _cugraph_of(layer):
                made[layer] = _swapped_cugraph(layer, cugraph)
            elif _passes_messages(layer):
                made[layer] = _refusal(layer, kinds) or _swapped(layer, kinds[type(layer)])
            else:
                continue
        found = made[layer]
        if isinstance(found, str):
            left[name] = found
        else:
            parent._modules[place] = found
            swapped[name] = type(found).__name__
    return Conversion(swapped, left)


def _originals() -> dict[type, type[Messages]]:
    """Return the layers by the originals, none without PyTorch Geometric."""
    try:
        import torch_geometric.nn as originals
        from torch_geometric.nn.models import schnet
    except ImportError:  # so that the model has no layer of it
        return {}
    return {
        getattr(schnet if kind is CFConv else originals, kind.__name__): kind for kind in LAYERS
    }


def _passes_messages(layer: torch.nn.Module) -> bool:
    return any(
        kind.__name__ == "MessagePassing" and kind.__module__.startswith("torch_geometric.")
        for kind in type(layer).__mro__
    )


def _block_of(layer: torch.nn.Module) -> type[MeshEdgeBlock | MeshNodeBlock] | None:
    """Return the replacement for a block of PhysicsNeMo, None for others."""
    kind = type(layer)
    return BLOCKS.get(kind.__name__) if kind.__module__.startswith("physicsnemo.") else None


def _cugraph_of(layer: torch.nn.Module) -> type[Messages] | None:
    """Return the replacement for a layer that calls pylibcugraphops, None for others."""
    kind = type(layer)
    return CUGRAPH.get(kind.__name__) if kind.__module__.startswith("torch_geometric.") else None


def _places(
    module: torch.nn.Module, prefix: str, visited: set[torch.nn.Module]
) -> Iterator[tuple[torch.nn.Module, str, str]]:
    """Yield each parent, the key of a child and the child's name; the caller may replace it."""
    visited.add(module)
    if isinstance(module, torch.jit.ScriptModule):
        return
    for place in [*module._modules]:
        yield module, place, prefix + place
        child = module._modules[place]
        if child is not None and child not in visited:
            yield from _places(child, f"{prefix}{place}.", visited)


def _refusal(layer: Any, kinds: Mapping[type, type[Messages]]) -> str | None:
    """Return why a message-passing layer cannot be swapped, None if it can."""
    name = type(layer).__name__
    if type(layer) not in kinds:
        of = next((kind.__name__ for kind in kinds if isinstance(layer, kind)), None)
        if of is not None:
            return f"{name}: a subclass of {of}"
        text = f"{name}: pyops.torch.nn has none"
        return f"{text}; use {REPLACEMENTS[name]}" if name in REPLACEMENTS else text
    replaced = next((call for call in _CALLS if call in vars(layer)), None)
    if replaced is not None:
        return f"{name}: its {replaced} was replaced"
    for part in PARTS:
        for when in "pre_hooks", "hooks":
            if getattr(layer, f"_{part}_forward_{when}", None):
                return f"{name}: it has hooks on {part}"
    if layer._explain:
        return f"{name}: an explainer uses it"
    if layer.node_dim not in (-2, 0):
        return f"{name}: node_dim: expected -2, got {layer.node_dim}"
    if layer.decomposed_layers != 1:
        return f"{name}: decomposed_layers: expected 1, got {layer.decomposed_layers}"
    if _is_native(layer.aggr) and not _is_plain_reduction(layer):
        return f"{name}: aggr_module: expected the reduction {layer.aggr}, got {layer.aggr_module}"
    return None


def _is_native(aggr: object) -> bool:
    return isinstance(aggr, str) and aggr in REDUCTIONS


def _is_plain_reduction(layer: Any) -> bool:
    """Return whether the module that reduces messages is the one for the layer's `aggr`."""
    kind = "Sum" if layer.aggr == "add" else layer.aggr.capitalize()
    found = layer.aggr_module
    hooks = found._forward_hooks or found._forward_pre_hooks
    return type(found).__name__ == f"{kind}Aggregation" and not hooks


def _swapped(layer: Any, kind: type[Messages]) -> Messages:
    """Return a layer of this package that shares the state of an original."""
    from torch_geometric.nn import MessagePassing

    own = vars(MessagePassing()).keys() - vars(torch.nn.Module()).keys()
    state = {name: value for name, value in vars(layer).items() if name not in own}
    new = _sharing(kind, state, _label=f"pyops.torch.nn.{kind.__name__}")
    new.aggr, new.flow = layer.aggr, layer.flow
    if _is_native(layer.aggr):
        del new._modules["aggr_module"]
        new.aggr_module = None
    return new


def _swapped_cugraph(layer: torch.nn.Module, kind: type[Messages]) -> Messages | str:
    """Return a layer that shares the state of one of pylibcugraphops, or why there is none."""
    if "forward" in vars(layer):
        return f"{kind.__name__}: its forward was replaced"
    plain = {"aggr": "add", "aggr_module": None, "flow": FLOWS[0], "dropout": 0.0, "edge_dim": None}
    return _sharing(kind, {**plain, **vars(layer)}, _label=f"pyops.torch.nn.{kind.__name__}")


def _swapped_block(
    layer: torch.nn.Module, kind: type[MeshEdgeBlock | MeshNodeBlock]
) -> torch.nn.Module | str:
    """Return a block that shares the state of one of PhysicsNeMo, or why there is none."""
    name, part = kind.__name__, "node_mlp"
    kinds: list[type[torch.nn.Module]] = [MeshGraphMLP]
    if kind is MeshEdgeBlock:
        part, kinds = "edge_mlp", [MeshGraphEdgeMLPConcat, MeshGraphEdgeMLPSum]
    network = layer._modules.get(part)
    found = next((k for k in kinds if k.__name__ == type(network).__name__), None)
    linears = [m for m in network.modules() if isinstance(m, torch.nn.Linear)] if network else []
    if network is None or found is None or not linears:
        expected = " or ".join(k.__name__ for k in kinds)
        got = f"{type(network).__name__} with {len(linears)}"
        return f"{name}: {part}: expected {expected} with linear layers, got {got}"
    aggregation = getattr(layer, "aggregation", "sum")
    if aggregation not in ("sum", "mean"):
        return f"{name}: aggregation: expected sum or mean, got {aggregation}"
    if any("forward" in vars(module) for module in (layer, network)):
        return f"{name}: its forward was replaced"
    caller = f"pyops.torch.nn.{name}"
    of_edge = linears[-1].out_features
    of_node = (linears[0].in_features - of_edge) // 2
    if found is MeshGraphEdgeMLPSum:
        of_node = network.get_parameter("lin_src").shape[1]
    new = _sharing(kind, vars(layer), _caller=caller)
    widths = of_edge, of_node, of_node
    new._modules[part] = _sharing(found, vars(network), _caller=caller, _widths=widths)
    return new


def _sharing(kind: type[_Module], state: Mapping[str, object], **attributes: object) -> _Module:
    """Return a module that shares parameters, inner modules and hooks with the owner of a state.

    It is not constructed, as that would initialize parameters.
    """
    new = object.__new__(kind)
    own = {name: copy(state[name]) for name in ("_parameters", "_buffers", "_modules")}
    new.__dict__ = {**state, **own, **attributes}
    return new
