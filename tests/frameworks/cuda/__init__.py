"""Checks of pyops.cuda."""
