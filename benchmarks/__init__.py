"""Operator by peer, with the machine's own limits measured in the same run: `python -m benchmarks`.

`cases.py` is the table of what is measured. An operator (`operators/`) says once what it computes,
in each library; a peer (`peers/`) says once how its library runs the phases. To add an operator,
write its file and its lines in the table. `products.py` has the small products that the kernels are
made of, beside those of OpenBLAS and libxsmm: `--only products`.
"""
