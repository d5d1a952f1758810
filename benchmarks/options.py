"""Types of command-line options."""

import argparse
import os


def positive(text: str) -> int:
    """Return the number of an option that is 1 or more."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{value} is less than 1")
    return value


def thread_count(text: str) -> int:
    """Return a number of threads that each have a core."""
    cores = len(os.sched_getaffinity(0))
    if (value := positive(text)) > cores:
        raise argparse.ArgumentTypeError(f"{value}: this process has {cores} cores")
    return value
