"""The operators, one module each: a signature with shapes, a formula, the docstring."""
