"""Shared parts of the tests: cases, graphs, comparisons."""
