"""What this machine's kernel remembers of a write-back that failed.

When the write-back of a page fails, Linux calls the page clean and keeps the error with the file's
inode until a sync tells it. Since 4.17 the first sync tells it though the file was opened only
after the failure. The error and the pages that the disk lacks live in the same inode in memory:
should the system drop that, reads come from the disk again. So a first sync that succeeds says that
what is read is what the disk has.

That is known of the file systems named here, and of no other: a network's or a FUSE file system
has a second cache behind the first, and another kernel's rules are its own. With `data=journal`
ext4 tells an error one sync too late.

Thread-safety: pure functions over files of the system. Never raises: what is not known is False.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["keeps_errors"]

# errseq_sample() gives an opener the errors that nobody has seen.
FIRST_KERNEL: Final = (4, 17)
FILE_SYSTEMS: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs"})
MOUNTS: Final = Path("/proc/self/mountinfo")

_RELEASE = re.compile(r"(\d+)\.(\d+)")
_ESCAPE = re.compile(r"\\([0-7]{3})")


class _Mount(NamedTuple):
    """Where something is mounted, of which type, with which options of the file system."""

    point: str
    kind: str
    options: frozenset[str]


def keeps_errors(directory: Path, *, mounts: Path = MOUNTS, release: str | None = None) -> bool:
    """Say whether a failed write-back in `directory` is told by the next sync of that file."""
    match = _RELEASE.match(os.uname().release if release is None else release)
    if sys.platform != "linux" or match is None:
        return False
    if (int(match[1]), int(match[2])) < FIRST_KERNEL:
        return False
    mount = _mount_of(os.path.realpath(directory), mounts)
    return mount is not None and mount.kind in FILE_SYSTEMS and "data=journal" not in mount.options


def _mount_of(path: str, mounts: Path) -> _Mount | None:
    """Return what is mounted where `path` is: the last line of those with the longest point."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    best: _Mount | None = None
    for mount in map(_parse, lines):
        if mount is None or not _is_below(path, mount.point):
            continue
        if best is None or len(mount.point) >= len(best.point):
            best = mount
    return best


def _parse(line: str) -> _Mount | None:
    # id, parent, device, root, point, options, optional fields, "-", type, source, options of it
    front, separator, back = line.partition(" - ")
    fields, described = front.split(" "), back.split(" ")
    if not separator or len(fields) < 6 or len(described) < 3:
        return None
    point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
    return _Mount(point, described[0], frozenset(described[2].split(",")))


def _is_below(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")
