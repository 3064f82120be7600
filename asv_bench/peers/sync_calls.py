"""Count of the calls by which a process waits for its disk, by a library that is preloaded.

The parent builds the library (`build`) and starts a process with `preloaded`; the process reads the
count with `sync_calls`.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

__all__ = ["build", "preloaded", "sync_calls"]

SOURCE = Path(__file__).with_name("sync_calls.c")


def build(folder: Path) -> Path:
    """Build the library; return its path."""
    target = folder / "sync_calls.so"
    compiler = shutil.which("gcc") or shutil.which("cc") or "gcc"
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", target, SOURCE, "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    return target


def preloaded(library: Path) -> dict[str, str]:
    """Return the environment of a process that counts."""
    return {**os.environ, "LD_PRELOAD": str(library)}


def sync_calls() -> int:
    """Return the number of calls of this process so far, which has the library preloaded."""
    count = ctypes.CDLL(None).sync_calls
    count.restype = ctypes.c_long
    return int(count())
