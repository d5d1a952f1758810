"""Checks of the front ends."""
