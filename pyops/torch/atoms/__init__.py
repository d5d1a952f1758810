"""Molecules and crystals: energies, forces and stress of models, and data to train them on.

A model here is a `torch.nn.Module` that is called as ``model(z, pos, batch, cell=cell, pbc=pbc)``
and returns one energy for each graph, such as `pyops.torch.nn.DimeNetPlusPlus` with one output or
`pyops.torch.nn.SchNet`. `pyops.ase.Calculator` runs it in ASE.
"""

from ._batch import AtomsBatch as AtomsBatch
from ._batch import collate as collate
from ._dataset import AtomsDataset as AtomsDataset
from ._potential import Potential as Potential
from ._potential import energy_forces_stress as energy_forces_stress
