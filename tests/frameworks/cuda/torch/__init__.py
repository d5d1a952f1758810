"""pyops.torch with tensors on a device."""
