"""Graphs: their construction, indices and conversions, and the search for neighbours."""
