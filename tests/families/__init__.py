"""Checks of one family of operators each."""
