"""Table of benchmark cases, one per line."""

from dataclasses import dataclass

PHASES = ("forward", "backward", "double_backward")


@dataclass(frozen=True)
class Case:
    """Operator at one size; `phases` are cumulative, as in training."""

    operator: str
    nodes: int = 2000
    degree: int = 32
    dims: int = 3
    hidden: int = 64
    width: int = 64
    samples: int = 0  # of operators without a graph, with `hidden` modes on `nodes` points
    heads: int = 0  # of attention, each of width `width`
    reduce: str = "sum"
    kernel: str = "matrix"
    hub: bool = False  # one destination has half of the edges
    steep: bool = False  # degrees of both ends follow a power law
    offset: int = 0  # bytes of arrays after the start of a cache line: 16 in NumPy, 0 in frameworks
    dtype: str = "float32"
    phases: tuple[str, ...] = PHASES
    peers: tuple[str, ...] = ()  # () means all
    one_thread: bool = False
    plotted: bool = False

    @property
    def edges(self) -> int:
        return self.nodes * self.degree

    @property
    def out_features(self) -> int:
        return 1 if self.kernel == "diagonal" else self.width

    @property
    def title(self) -> str:
        """Return the common title of cases that differ only in the number of nodes."""
        if self.samples:
            return f"{self.operator}: {self.samples} samples, {self.hidden} modes, {self.dtype}"
        name = f"{self.operator}, diagonal" if self.kernel == "diagonal" else self.operator
        hub = ", half of them into one" if self.hub else ", power law" if self.steep else ""
        hub += f", arrays {self.offset} bytes behind a line" if self.offset else ""
        if self.operator == "aggregate":
            return (
                f"aggregate, {self.reduce}: {self.degree} edges a node{hub}, F {self.width}, "
                f"{self.dtype}"
            )
        if self.operator == "segment_matmul":
            return f"segment_matmul: 16 types, F {self.width}, {self.dtype}"
        if self.operator in AGGREGATIONS:
            bases = f", {self.hidden} bases" if self.operator == "hetero_basis" else ""
            return (
                f"{self.operator}: {self.degree} edges a node{hub}{bases}, F {self.width}, "
                f"{self.dtype}"
            )
        if self.heads:
            return (
                f"{self.operator}: {self.degree} edges a node{hub}, {self.heads} heads of "
                f"{self.width}, {self.dtype}"
            )
        if self.operator == "dimenet_aggregate":
            return f"{name}: {self.degree} edges a node, C {self.width}, {self.dtype}"
        return (
            f"{name}: {self.degree} edges a node{hub}, d {self.dims}, H {self.hidden}, "
            f"F {self.width}, {self.dtype}"
        )


FIRST_ORDER = PHASES[:2]
ALONE = ("pyops",)
WITHOUT_GRAPH = (
    "orthonormalize",
    "ono_encode",
    "ono_decode",
    "lno_encode",
    "lno_decode",
    "elem_scale",
)
AGGREGATIONS = (
    "aggregate_max",
    "degree_normalised",
    "hetero_basis",
    "edge_update",
    "edge_to_edge",
)
ATTENTION = ("gat", "gat_v2", "segment_softmax", "transformer_conv")
BASES = "radial_basis", "spherical_basis", "spherical_harmonics"
CASES = (
    # Points and their neighbours: 24 edges per node as in molecules, 44 as in crystals.
    Case("dimenet_aggregate", nodes=1000, degree=24),
    Case("dimenet_aggregate", nodes=1000, degree=44, phases=PHASES[:1]),
    # Time is linear in the edges, despite 2.5e8 triplets.
    *(
        Case(
            "dimenet_aggregate",
            nodes=1000,
            degree=n,
            phases=FIRST_ORDER,
            one_thread=True,
            plotted=True,
        )
        for n in (5, 10, 20, 40)
    ),
    *(
        Case(
            "dimenet_aggregate",
            nodes=1000,
            degree=n,
            phases=FIRST_ORDER,
            one_thread=True,
            plotted=True,
            peers=ALONE,
        )
        for n in (70, 100)
    ),
    Case("dimenet_aggregate", nodes=100_000, degree=50, phases=FIRST_ORDER, peers=ALONE),
    *(Case(name, nodes=200, degree=1, samples=128, one_thread=True) for name in BASES),
    Case("gno_conv", plotted=True),
    Case("gno_conv", dtype="float64", peers=ALONE),
    Case("gno_conv", degree=8, one_thread=True),
    Case("gno_conv", width=32),
    Case("gno_conv", width=32, degree=8, one_thread=True),
    Case("gno_conv", width=16),
    Case("gno_conv", width=16, degree=8, one_thread=True),
    Case("gno_kernel", nodes=500, width=32, one_thread=True),
    Case("gno_aggregate", nodes=500, width=32, one_thread=True),
    Case("kernel_conv", nodes=500, width=32, one_thread=True),
    Case("kernel_conv", kernel="diagonal"),
    # neuraloperator's double backward takes memory quadratic in the nodes: 2 GB here.
    Case("integral_transform", nodes=500, kernel="diagonal", one_thread=True),
    *(Case(name, nodes=1024, degree=1, samples=128, one_thread=True) for name in WITHOUT_GRAPH),
    Case("gat", nodes=20_000, degree=25, heads=8, width=32),
    Case(
        "gat",
        nodes=20_000,
        degree=25,
        heads=8,
        width=32,
        offset=16,
        one_thread=True,
        peers=("pyops", "torch_compile"),
    ),
    Case("segment_softmax", nodes=20_000, degree=25, heads=8, one_thread=True),
    *(
        Case(name, nodes=5000, degree=25, heads=8, width=32, one_thread=True)
        for name in ("gat_v2", "transformer_conv")
    ),
    *(
        Case("aggregate", nodes=20_000, degree=25, width=256, reduce=reduce, phases=FIRST_ORDER)
        for reduce in ("sum", "mean")
    ),
    Case("aggregate_max", nodes=20_000, degree=25, width=256, phases=FIRST_ORDER),
    Case("degree_normalised", nodes=20_000, degree=25, width=256, phases=FIRST_ORDER),
    Case("hetero_basis", nodes=5000, degree=25, width=64, hidden=8, one_thread=True),
    Case("segment_matmul", nodes=60_000, degree=1, one_thread=True),
    Case("edge_update", nodes=20_000, degree=8, width=64, one_thread=True),
    Case("edge_mlp", nodes=20_000, degree=8, width=128, hidden=128, one_thread=True),
    Case("edge_to_edge", nodes=20_000, degree=4, width=256, one_thread=True),
    # Ten million edges and a million nodes, with uniform and with skewed degrees.
    Case("gno_conv", nodes=312_500, hidden=16, width=16, phases=FIRST_ORDER, peers=ALONE),
    Case("gno_conv", nodes=312_500, hidden=16, width=16, hub=True, phases=FIRST_ORDER, peers=ALONE),
    Case("gno_conv", nodes=1_000_000, width=16, phases=FIRST_ORDER, peers=ALONE),
    *(
        Case(name, 400_000, 25, heads=h, width=w, steep=steep, phases=FIRST_ORDER, peers=ALONE)
        for name, h, w in (("gat", 8, 8), ("aggregate", 0, 64))
        for steep in (False, True)
    ),
    # Series over the number of edges; per-edge matrices take 1 GB each at 2,000 nodes.
    *(
        Case("gno_conv", nodes=nodes, phases=FIRST_ORDER, one_thread=True, plotted=True)
        for nodes in (32, 125, 500)
    ),
    *(
        Case("gno_conv", nodes=n, phases=FIRST_ORDER, one_thread=True, plotted=True, peers=ALONE)
        for n in (8000, 32000)
    ),
)

TINY = [
    Case(
        operator,
        nodes=5,
        degree=2,
        hidden=4,
        width=2,
        samples=3 if operator in (*WITHOUT_GRAPH, *BASES) else 0,
        heads=2 if operator in ATTENTION else 0,
        dtype="float64",
    )
    for operator in sorted({case.operator for case in CASES} - {"integral_transform"})
]

QUICK = (
    Case("dimenet_aggregate", nodes=100, degree=24),
    *(Case(name, nodes=10, degree=1, samples=32, one_thread=True) for name in BASES),
    Case("gno_conv", nodes=250, width=32, plotted=True),
    Case("gno_conv", nodes=60, width=32, phases=FIRST_ORDER, one_thread=True, plotted=True),
    Case("gno_kernel", nodes=250, width=16, one_thread=True),
    Case("gno_aggregate", nodes=250, width=16, one_thread=True),
    Case("segment_matmul", nodes=5000, degree=1, width=32, one_thread=True),
    Case("edge_mlp", nodes=500, degree=8, width=32, hidden=32, one_thread=True),
    Case("kernel_conv", nodes=250, width=16, one_thread=True),
    Case("kernel_conv", nodes=250, kernel="diagonal", one_thread=True),
    Case("integral_transform", nodes=250, kernel="diagonal", one_thread=True),
    *(Case(name, nodes=2000, degree=25, heads=8, width=32, one_thread=True) for name in ATTENTION),
    Case("aggregate", nodes=2000, degree=25, width=256, phases=FIRST_ORDER, one_thread=True),
    *(
        Case(name, nodes=1000, degree=8, width=32, hidden=4, one_thread=True)
        for name in AGGREGATIONS
    ),
    *(
        Case(name, nodes=256, degree=1, hidden=16, samples=32, one_thread=True)
        for name in WITHOUT_GRAPH
    ),
)
