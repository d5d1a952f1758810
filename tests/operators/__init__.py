"""Checks of every operator, over the operator table, and of properties of single operators."""
