"""What follows from the declarations: names, stubs, sizes, parameter blocks."""
