"""Declarations of the operators, one module each: signature with shapes, formula, docstring."""
