"""Checks of models of molecules and crystals, and of what trains and runs them."""
