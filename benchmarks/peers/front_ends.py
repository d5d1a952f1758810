"""pyops through a framework: its operator in place of the formula that the peer there runs."""

from dataclasses import replace
from importlib import import_module
from types import SimpleNamespace

import numpy as np

from benchmarks.peers import pyops as numpy


class FrontEnd:
    """A peer, as the modules beside this one, that runs functions of pyops.torch or pyops.jax."""

    def __init__(self, framework, peer):
        self._framework = framework
        self._peer = import_module(f"benchmarks.peers.{peer}")
        self.COMPILED, self.versions = self._peer.COMPILED, self._peer.versions

    def set_threads(self, count):
        self._peer.set_threads(count)
        numpy.set_threads(count)

    def load(self, module, problem):
        import torch

        operator, inputs, cotangents, options = numpy.prepare(module, problem)
        front_end = import_module(f"pyops.{self._framework}")
        function, leading = getattr(front_end, operator.name), inputs[: -len(cotangents)]
        if leading and self._framework == "torch":  # which could not read its indices
            (graph,) = leading
            packed = front_end.Graph(graph.src, graph.dst, graph.num_src, graph.num_dst)
            leading = [packed.with_edge_ids(graph.edge_ids, graph.num_edges)]
            options = {
                name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
                for name, value in options.items()
            }

        def formula(_, *arrays):
            return function(*leading, *arrays, **options)

        given = [array for array in inputs[len(leading) :] if array is not None]
        cotangents = [array for array in cotangents if array is not None]  # absent inputs are last
        self._inputs = len(given)
        named = dict(enumerate(given))
        problem = replace(problem, graph={}, inputs=named, cotangents=cotangents)
        return self._peer.load(SimpleNamespace(**{f"in_{self._framework}": formula}), problem)

    def arrays(self, module, case, results):
        y, *rest = self._peer.arrays(module, case, results)
        orders = rest[: self._inputs], rest[self._inputs :]
        return numpy.arrays(module, case, [y, *(order for order in orders if order)])
