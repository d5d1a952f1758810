"""Checks of pyops.torch."""
