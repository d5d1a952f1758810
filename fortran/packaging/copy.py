"""Copy files: copy.py FROM TO NAME..."""

import shutil
import sys
from pathlib import Path

source, target, *names = sys.argv[1:]
for name in names:
    shutil.copy(Path(source, name), target)
