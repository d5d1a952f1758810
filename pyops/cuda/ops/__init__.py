"""Operators on a device, one module each, with a function for every compiled phase.

A function takes the runtime and the arguments of the call, see `_arguments`. It stores the outputs,
or adds to them if `accumulate` is set; an output that is not requested is None.
"""
