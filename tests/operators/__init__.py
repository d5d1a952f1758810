"""Checks of every operator, over the operator table."""
