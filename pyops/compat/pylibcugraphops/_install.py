"""The name `pylibcugraphops` for these modules, for code that imports it."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_NAME, _PLACE = "pylibcugraphops", "pyops.compat."


def install() -> None:
    """Let ``import pylibcugraphops`` and imports of its submodules find these modules.

    For packages that import pylibcugraphops, such as the layers of DGL; call it before their
    import. A second call changes nothing.

    Raises
    ------
    ImportError
        If NVIDIA's pylibcugraphops is installed.

    Examples
    --------
    >>> import pyops.compat.pylibcugraphops
    >>> pyops.compat.pylibcugraphops.install()
    >>> from pylibcugraphops.operators import agg_concat_n2n_fwd
    """
    if any(isinstance(finder, _Alias) for finder in sys.meta_path):
        return
    if importlib.util.find_spec(_NAME) is not None:
        raise ImportError(
            f"{_PLACE}{_NAME}.install: expected no other {_NAME}, got one that is installed"
        )
    sys.meta_path.insert(0, _Alias())  # before the finder that would load files again


class _Alias(MetaPathFinder, Loader):
    """Finds each module of the name in its place, imported once under both names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] != _NAME or importlib.util.find_spec(_PLACE + name) is None:
            return None
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_PLACE + spec.name)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the specification that the import has replaced."""
        spec = module.__spec__
        if spec is not None:
            module.__spec__ = spec.loader_state
