"""Model files: the container, programs, and their derivatives."""
