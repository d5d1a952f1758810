"""Tests, one file per property, over the table of operators."""
