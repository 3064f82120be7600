"""Interface of the machine: limits, settings of the kernel, disk space, ownership of files.

An interface as for the disk, so that tests can simulate machines. All methods only read.

Thread-safety: `LocalMachine` has no state; its answers are of the moment.
"""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["DiskSpace", "LocalMachine", "Machine", "Ownership"]


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """
    Space on a file system, for users other than root.

    Attributes:
        total_bytes, available_bytes: space for data.
        total_inodes, available_inodes: number of files; 0 and 0 for a file system without a limit.
    """

    total_bytes: int
    available_bytes: int
    total_inodes: int
    available_inodes: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """
    Ownership of a file or directory.

    Attributes:
        user_id: owner of the file.
        mode: permission bits of the file.
        is_usable: True if this process may read and write the file (and enter a directory).
    """

    user_id: int
    mode: int
    is_usable: bool


class Machine(Protocol):
    """Facts of a machine. Errors pass as OSError, unless a method states another result."""

    def system(self) -> str:
        """Return the name of the operating system, as "Linux"."""
        ...

    def release(self) -> str:
        """Return the kernel's release, as "6.1.0-13-amd64"."""
        ...

    def read(self, path: Path) -> str | None:
        """Return the text of a file of the system; None if it is missing or not readable."""
        ...

    def descriptor_limits(self) -> tuple[int | None, int | None]:
        """Return the soft and the hard limit of descriptors of this process; None if unlimited."""
        ...

    def disk_space(self, directory: Path) -> DiskSpace: ...
    def ownership(self, path: Path) -> Ownership: ...


class LocalMachine:
    """The machine that this process runs on."""

    __slots__ = ()

    def system(self) -> str:
        return platform.system()

    def release(self) -> str:
        return platform.release()

    def read(self, path: Path) -> str | None:
        try:
            return path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError:
            return None

    def descriptor_limits(self) -> tuple[int | None, int | None]:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return _limit(soft), _limit(hard)

    def disk_space(self, directory: Path) -> DiskSpace:
        facts = os.statvfs(directory)
        return DiskSpace(
            total_bytes=facts.f_blocks * facts.f_frsize,
            available_bytes=facts.f_bavail * facts.f_frsize,
            total_inodes=facts.f_files,
            available_inodes=facts.f_favail,
        )

    def ownership(self, path: Path) -> Ownership:
        facts = path.stat()
        mode = os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0)
        usable = os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)
        return Ownership(facts.st_uid, facts.st_mode & 0o7777, usable)


def _limit(number: int) -> int | None:
    return None if number == resource.RLIM_INFINITY else number
