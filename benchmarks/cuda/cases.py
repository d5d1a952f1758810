"""Cases, the most important first, and targets."""

from dataclasses import dataclass

from benchmarks.cases import FIRST_ORDER, Case

WIDE = {"degree": 25, "heads": 8, "width": 32}
CASES = (
    Case("gno_conv"),
    Case("gat", nodes=20_000, **WIDE),
    Case("dimenet_aggregate", nodes=1000, degree=24),
    Case("gno_conv", nodes=20_000, phases=FIRST_ORDER),
    Case("gat", nodes=100_000, phases=FIRST_ORDER, **WIDE),
    Case("dimenet_aggregate", nodes=10_000, degree=24),
    Case("transformer_conv", nodes=20_000, **WIDE),
    Case("gat_v2", nodes=20_000, **WIDE),
    Case("kernel_conv", nodes=2000),
    Case("kernel_conv", nodes=2000, kernel="diagonal"),
)
PEERS = "torch", "jax", "torch_compile"
OPERATORS = tuple(dict.fromkeys(case.operator for case in CASES))
PRECISE = "gno_conv", "kernel_conv", "dimenet_aggregate"
"""Operators with matrix products, which support other precisions."""


@dataclass(frozen=True)
class Target:
    """Least speed-up over the best peer, or largest multiple of the time of two gathers."""

    operator: str
    phase: str
    least: float = 0.0
    most: float = 0.0

    def __str__(self) -> str:
        if self.most:
            return f"{self.operator}, {self.phase}: at most {self.most:g} times two gathers"
        return f"{self.operator}, {self.phase}: at least {self.least:g} times the best peer"


TARGETS = (
    Target("gat", "backward", most=2),
    Target("gno_conv", "backward", least=10),
    Target("dimenet_aggregate", "double_backward", least=5),
)
