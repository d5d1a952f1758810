"""The tests, filed by check and driven by the table of operators."""
