"""Checks of what the library does to a process, of its installation and of programs that use it."""
