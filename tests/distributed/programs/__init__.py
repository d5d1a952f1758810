"""Programs that `mpiexec` starts; the tests call their functions by name."""
