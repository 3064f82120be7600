"""Samples of what processes and a file system use, from `/proc` and `statvfs`. Linux only."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["disk_sample", "process_sample"]

JOURNAL = ".kafkalog_journal."


def process_sample(pid: int) -> dict[str, int] | None:
    """Return RSS (bytes), open descriptors, mappings and threads; None if the process has ended."""
    folder = Path("/proc") / str(pid)
    try:
        lines = (folder / "status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        if "VmRSS" not in fields:
            # A zombie has no memory.
            return None
        return {
            "rss": int(fields["VmRSS"].split()[0]) << 10,
            "descriptors": len(list((folder / "fd").iterdir())),
            "mappings": (folder / "maps").read_bytes().count(b"\n"),
            "threads": int(fields["Threads"]),
        }
    except (FileNotFoundError, ProcessLookupError):
        return None


def disk_sample(directory: Path) -> dict[str, int]:
    """
    Return the use of a data directory: `disk` and `journal` are allocated bytes, `files` a number.

    The commit journal is apart: its second file is made when the first is half full, and both stay
    up to a stop in order. Its setting limits them.
    """
    found = {"disk": 0, "journal": 0, "files": 0}
    for folder, _, names in os.walk(directory):
        for name in names:
            # Files are deleted during the walk.
            with contextlib.suppress(FileNotFoundError):
                size = (Path(folder) / name).lstat().st_blocks * 512
                found["journal" if name.startswith(JOURNAL) else "disk"] += size
                found["files"] += 1
    return found
