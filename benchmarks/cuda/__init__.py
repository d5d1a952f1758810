"""Benchmarks of pyops against peers on one CUDA device: `python -m benchmarks.cuda --help`.

Needs CuPy, and measures torch and JAX if they are installed for the device. Each phase includes
the preceding ones, as in training. Limits are measured in the same run.
"""
