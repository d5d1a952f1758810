"""Calls: arguments are checked, sizes solved and plans cached; then the compiled procedure runs."""
