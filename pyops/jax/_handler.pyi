from array import array
from collections.abc import Callable, Sequence

from ..graph import Graph

kernels: dict[str, int]

def target(
    function: Callable[[bytes, Sequence[memoryview], Sequence[memoryview]], object],
    limits: array[int],
    /,
) -> object: ...
def forget(graph: Graph, /) -> None: ...
