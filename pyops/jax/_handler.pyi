from collections.abc import Callable
from typing import Any

def target(function: Callable[..., None], /) -> Any: ...
