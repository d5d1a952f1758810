"""Copy files from whichever folder has them: gather.py TO FROM... -- NAME..."""

import shutil
import sys
from pathlib import Path

target, *rest = sys.argv[1:]
cut = rest.index("--")
for name in rest[cut + 1 :]:
    (source,) = (Path(folder, name) for folder in rest[:cut] if Path(folder, name).is_file())
    shutil.copy(source, target)
