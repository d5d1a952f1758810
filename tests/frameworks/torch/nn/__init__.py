"""Checks of pyops.torch.nn."""
