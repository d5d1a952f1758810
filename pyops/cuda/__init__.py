"""The operators on CUDA devices; imported on first use of an array or a graph of a device."""

from ._graph import DeviceGraph as DeviceGraph
