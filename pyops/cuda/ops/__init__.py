"""What the operators do on a device, one module each: a function for every compiled phase."""
