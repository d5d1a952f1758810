"""Write the C functions that call each kernel of the operators with arguments from an array.

python calls.py calls.c pyops/ops OPERATOR...
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "pyops"))
from _schema.calls import called_kernels, write_calls
from _schema.interface import HALVES

if __name__ == "__main__":
    out, declarations, *operators = sys.argv[1:]
    kernels = called_kernels(operators, Path(declarations), halves=HALVES)
    Path(out).write_text(write_calls(kernels))
