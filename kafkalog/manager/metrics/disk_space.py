"""Free space of the file system of a data directory.

Thread-safety: no state.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kafkalog.files.machine import DiskSpace, LocalMachine

__all__ = ["free_space"]

_MACHINE: Final = LocalMachine()


def free_space(directory: Path) -> DiskSpace | None:
    """Return the space, None if the file system does not answer, or has no size."""
    try:
        space = _MACHINE.disk_space(directory)
    except OSError:
        return None
    return space if space.total_bytes else None
