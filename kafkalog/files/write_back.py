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
from typing import Final

from kafkalog.files.mounts import MOUNTS, Mount, find_mount

__all__ = ["FIRST_KERNEL", "keeps_errors", "kernel_version", "mount_keeps_errors"]

# errseq_sample() gives an opener the errors that nobody has seen.
FIRST_KERNEL: Final = (4, 17)
FILE_SYSTEMS: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs"})

_RELEASE = re.compile(r"(\d+)\.(\d+)")


def keeps_errors(directory: Path, *, mounts: Path = MOUNTS, release: str | None = None) -> bool:
    """Say whether a failed write-back in `directory` is told by the next sync of that file."""
    version = kernel_version(os.uname().release if release is None else release)
    if sys.platform != "linux" or version is None or version < FIRST_KERNEL:
        return False
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return False
    mount = find_mount(os.path.realpath(directory), table)
    return mount is not None and mount_keeps_errors(mount)


def kernel_version(release: str) -> tuple[int, int] | None:
    """Return the first two numbers of a kernel's release, or None where it has none."""
    match = _RELEASE.match(release)
    return None if match is None else (int(match[1]), int(match[2]))


def mount_keeps_errors(mount: Mount) -> bool:
    """Say whether the file system is one whose errors a new enough kernel keeps."""
    return mount.kind in FILE_SYSTEMS and "data=journal" not in mount.options
