"""Checks of the calls of pylibcugraphops."""
