"""Tests, one file per check; those of the operators run over the table of operators."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
"""Root of the source tree."""
