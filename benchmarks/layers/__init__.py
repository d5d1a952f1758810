"""Drop-in layers beside their originals, in one run: `python -m benchmarks.layers`."""
