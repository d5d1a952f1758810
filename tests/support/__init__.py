"""What the tests share: cases, graphs, comparisons."""
