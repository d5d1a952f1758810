"""Interfaces of other libraries, implemented by this one."""
