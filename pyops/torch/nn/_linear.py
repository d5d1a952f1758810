"""Linear layers of PyTorch Geometric: named initializers, and lazy input widths."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

import torch
from torch import Tensor
from torch.nn.modules.module import _has_any_global_hook
from torch.nn.parameter import Parameter, UninitializedParameter

if TYPE_CHECKING:
    from collections.abc import Callable

_HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
_WEIGHTS = None, "glorot", "uniform", "kaiming_uniform"


def glorot(weight: Tensor | None) -> None:
    """Initialize with the Glorot uniform distribution of the last two dimensions."""
    if weight is not None:
        bound = math.sqrt(6 / (weight.shape[-2] + weight.shape[-1]))
        weight.data.uniform_(-bound, bound)


def zeros(bias: Tensor | None) -> None:
    if bias is not None:
        bias.data.zero_()


def reset(network: object) -> None:
    """Initialize a network by its `reset_parameters`, or else its children; functions have none."""
    initialize: Callable[[], None] | None = getattr(network, "reset_parameters", None)
    if initialize is not None:
        initialize()
    elif isinstance(network, torch.nn.Module):
        for child in network.children():
            reset(child)


def is_plain(module: torch.nn.Module) -> bool:
    """Return whether a module has no hooks or replaced forward, so that its call may be fused."""
    kind = type(module)
    forward = kind.forward
    return not (
        "forward" in vars(module)
        or hasattr(forward, "__wrapped__")
        or (forward.__module__, forward.__qualname__)
        != (kind.__module__, f"{kind.__qualname__}.forward")
        or has_hooks(module)
    )


def has_hooks(module: torch.nn.Module) -> bool:
    """Return whether a call of a module runs hooks."""
    return any(getattr(module, name) for name in _HOOKS) or _has_any_global_hook()


def is_linear(layer: object, biased: bool = True) -> TypeGuard[AnyLinear]:
    """Return whether a call is x W^T + b and no more, so that it may be fused.

    If not `biased`, b has to be None.
    """
    kind = type(layer)
    other = kind.__name__ == "Linear" and kind.__module__.startswith("torch_geometric.")
    if not (kind in (torch.nn.Linear, Linear) or other) or not isinstance(layer, torch.nn.Module):
        return False
    return is_plain(layer) and (biased or layer.bias is None)


class Linear(torch.nn.Module):
    """Linear layer x W^T + b, whose input width may be lazy.

    Parameters
    ----------
    in_channels, out_channels : int
        Widths; an input width of -1 is set by the first call or `load_state_dict`.
    bias : bool
    weight_initializer : {None, "glorot", "uniform", "kaiming_uniform"}
        None is kaiming_uniform, with the bound of `torch.nn.Linear`.
    bias_initializer : {None, "zeros"}
    """

    weight: Parameter | UninitializedParameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        bias: bool = True,
        weight_initializer: str | None = None,
        bias_initializer: str | None = None,
    ) -> None:
        super().__init__()
        for name, value, known in (
            ("weight_initializer", weight_initializer, _WEIGHTS),
            ("bias_initializer", bias_initializer, (None, "zeros")),
        ):
            if value not in known:
                raise RuntimeError(f"pyops.torch.nn.Linear: {name}: expected one of {known}, "
                                   f"got {value!r}")  # fmt: skip
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.weight_initializer = weight_initializer
        self.bias_initializer = bias_initializer
        if in_channels > 0:
            self.weight = Parameter(torch.empty(out_channels, in_channels))
        else:
            self._defer_width()
        self.register_parameter("bias", Parameter(torch.empty(out_channels)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialize weight and bias anew."""
        if self.in_channels <= 0:
            return
        if self.weight_initializer == "glorot":
            glorot(self.weight)
        else:
            slope = math.sqrt(5)
            bound = math.sqrt(6 / ((1 + slope**2) * self.in_channels))
            if self.weight_initializer == "uniform":
                bound = 1 / math.sqrt(self.in_channels)
            self.weight.data.uniform_(-bound, bound)
        if self.bias_initializer == "zeros":
            zeros(self.bias)
        elif self.bias is not None:
            bound = 1 / math.sqrt(self.in_channels)
            self.bias.data.uniform_(-bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in_channels] to [..., out_channels]."""
        return torch.nn.functional.linear(x, self.weight, self.bias)

    def _defer_width(self) -> None:
        """Defer the input width to the first input."""
        self.in_channels = -1
        self.weight = UninitializedParameter()
        if not hasattr(self, "_hook"):
            self._hook = self.register_forward_pre_hook(self._infer_width)

    def _set_width(self, width: int) -> None:
        assert isinstance(self.weight, UninitializedParameter)
        self.in_channels = width
        self.weight.materialize((self.out_channels, width))
        self._hook.remove()
        del self._hook

    @torch.no_grad()
    def _infer_width(self, _: torch.nn.Module, given: tuple[Tensor, ...]) -> None:
        if isinstance(self.weight, UninitializedParameter):
            self._set_width(given[0].shape[-1])
            self.reset_parameters()

    def _save_to_state_dict(
        self, destination: dict[str, Tensor], prefix: str, keep_vars: bool
    ) -> None:
        whole = keep_vars or isinstance(self.weight, UninitializedParameter)
        destination[f"{prefix}weight"] = self.weight if whole else self.weight.detach()
        if self.bias is not None:
            destination[f"{prefix}bias"] = self.bias if keep_vars else self.bias.detach()

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *arguments: object
    ) -> None:
        weight = state_dict.get(f"{prefix}weight")
        is_lazy = isinstance(self.weight, UninitializedParameter)
        if isinstance(weight, UninitializedParameter):
            self._defer_width()
        elif weight is not None and is_lazy:
            self._set_width(weight.shape[-1])
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, "
            f"bias={self.bias is not None})"
        )


AnyLinear: TypeAlias = torch.nn.Linear | Linear
"""These and that of PyTorch Geometric."""
