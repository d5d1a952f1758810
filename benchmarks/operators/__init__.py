"""One file an operator: its inputs, what it computes in each library, and its least cost."""
