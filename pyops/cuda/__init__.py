"""The operators on CUDA devices: imported when an array or a graph of a device comes along."""

from ._graph import DeviceGraph as DeviceGraph
