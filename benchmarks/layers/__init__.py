"""Benchmarks of drop-in layers against their originals: `python -m benchmarks.layers`."""
