"""Measurements beside the operators: of elementwise functions, types, nodes, index arrays, rows."""
