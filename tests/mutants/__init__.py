"""Mutation testing: faults seeded into the kernels, and the tests that can detect them."""
