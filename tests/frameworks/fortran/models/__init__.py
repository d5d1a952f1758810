"""Checks of `use pyops_models` and the procedures of models for C."""
