"""The operators on a device, one module each, with a function for every compiled phase."""
