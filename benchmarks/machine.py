"""Machine and software of a run."""

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path


def describe() -> dict[str, object]:
    """Return the facts needed to interpret a measurement."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "processor": field("/proc/cpuinfo", "model name"),
        "vector instructions": vectors(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": field("/proc/meminfo", "MemTotal"),
        "system": platform.platform(),
        "python": platform.python_version(),
        "compiler": output(os.environ.get("CC", "cc"), "--version").split("\n")[0],
        "commit": output("git", "describe", "--always", "--dirty", "--abbrev=12"),
        "load": os.getloadavg()[0],
    }


def field(path: str, name: str) -> str:
    lines = Path(path).read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith(name)), "unknown")


def vectors() -> str:
    flags = field("/proc/cpuinfo", "flags").split()
    return next((name for name in ("avx512f", "avx2", "avx", "sse2") if name in flags), "unknown")


def output(*command: str) -> str:
    folder = Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
