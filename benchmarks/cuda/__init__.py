"""pyops beside its peers on one CUDA device: `python -m benchmarks.cuda --help`.

Needs CuPy, and measures those of torch and JAX that are installed for the device. Each phase
comprises those before it, as in training. Limits are measured in the same run.
"""
