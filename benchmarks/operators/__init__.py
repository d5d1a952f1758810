"""One file per operator: its inputs, its formula in each library, and its minimal cost."""
