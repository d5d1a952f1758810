"""Measurements beside those of operators: half precision, nodes, index arrays, rows of any size."""
