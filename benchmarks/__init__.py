"""Benchmarks of operators against peers and the machine's limits: `python -m benchmarks`.

`cases.py` is the table of cases. An operator (`operators/`) defines what it computes in each
library; a peer (`peers/`) defines how its library runs the phases. To add an operator, write its
file and its lines in the table. `products.py` measures the small matrix products of the kernels
against OpenBLAS and libxsmm: `--only products`.
"""
