"""Edges, graphs and neighbour lists as layers take them, checked and packed once."""
