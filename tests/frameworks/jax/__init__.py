"""Checks of pyops.jax."""
