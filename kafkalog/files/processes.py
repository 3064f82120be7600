"""Identity of a process: its number, and the time at which it started.

A number is assigned again after its process has ended. The start time, in ticks since the boot,
distinguishes both, and is the same in every namespace of process numbers.

Thread-safety: pure functions over files of the system. They never raise.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["PROCESSES", "own_start_ticks", "start_ticks"]

PROCESSES: Final = Path("/proc")
# Of the fields after the name of the program, which is in parentheses and may have any character.
_START_FIELD: Final = 19


def start_ticks(process_id: int, *, processes: Path = PROCESSES) -> int | None:
    """Return the start time of a process in ticks since the boot; None if it is unknown."""
    try:
        text = (processes / str(process_id) / "stat").read_bytes()
        return int(text.rpartition(b")")[2].split()[_START_FIELD])
    except (OSError, ValueError, IndexError):
        return None


def own_start_ticks() -> int | None:
    """Return the start time of this process; None if it is unknown."""
    return start_ticks(os.getpid())
