"""Checks of the Fortran API."""
