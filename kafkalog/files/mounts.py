"""Mounted file systems: type and options of a mount, failed write-backs, identity of the cache.

**Mounts** are read from the table that Linux keeps for each process.

**Failed write-backs.** When the write-back of a page fails, Linux marks the page as clean and keeps
the error with the file's inode until a sync reports it. Since 4.17 the first sync reports it even
if the file was opened only after the failure. The error and the pages that the disk lacks are
in the same inode in memory: if the system drops the inode, reads come from the disk again. So a
first sync that succeeds proves that reads return what the disk has. This is known of the file
systems named here only: a network or FUSE file system has a second cache below the first, and
another kernel has other rules. With `data=journal` ext4 reports an error one sync too late.

**Syncs of a whole file system** (`syncfs`). Since Linux 5.8 a failed write-back is kept with the
mounted file system, too, and each descriptor that was open before gets it once from `syncfs`. Until
5.17 the error of the file system's own part was dropped, and until 6.12 ext4 returned success after
it was shut down, as by the removal of its disk. XFS writes its log, which empties the cache of the
disk only if there is something to write: bytes written over others may stay there. So `syncfs` is
believed on ext4 since Linux 6.12, and nowhere else.

**Identity of the cache.** Written bytes stay in the memory of the kernel until the disk has them. A
process that is killed loses none of them; a power cut, or a file system that is shut down and
mounted again, may. So if the ids at two openings of a file are equal, both see the same bytes,
synced or not. The id is made of the boot (`boot_id` of the kernel), the device, and the kernel's
object of the mounted file system in `/sys/fs`, which is a new one after each mount. A file system
without such an object (of a network, or of a container's layers) has the boot and the device only.

Thread-safety: pure functions over text and over files of the system. They never raise: an unknown
fact is None, False or empty.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from kafkalog.files.filesystem import FileFacts

__all__ = [
    "FIRST_KERNEL",
    "ID_BYTES",
    "MOUNTS",
    "Mount",
    "cache_id",
    "file_in_cache",
    "find_mount",
    "keeps_errors",
    "kernel_version",
    "mount_keeps_errors",
    "reports_errors_of_syncfs",
]

MOUNTS: Final = Path("/proc/self/mountinfo")

_ESCAPE = re.compile(r"\\([0-7]{3})")

# errseq_sample() gives a process that opens a file the errors that no process has seen.
FIRST_KERNEL: Final = (4, 17)
FILE_SYSTEMS: Final = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs"})

# ext4 raises an error after a shutdown of the file system; see the module.
FIRST_KERNEL_OF_SYNCFS: Final = (6, 12)

_RELEASE = re.compile(r"(\d+)\.(\d+)")

ID_BYTES: Final = 8
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
SYSTEM: Final = Path("/sys")
# Kinds of file systems that have one object for each device that is mounted.
KINDS: Final = ("ext4", "xfs", "f2fs", "erofs")


class Mount(NamedTuple):
    """
    One mounted file system.

    Attributes:
        point: the mount point.
        kind: type of the file system, as "ext4" or "fuse.sshfs".
        source: the device, server or name that is mounted.
        flags: options of this mount ("ro", "relatime").
        options: options of the file system itself ("data=journal").
    """

    point: str
    kind: str
    source: str
    flags: frozenset[str]
    options: frozenset[str]

    def option(self, name: str) -> str | None:
        """Return the value of the option `name=value`, or None if it is not set."""
        for option in self.options:
            key, separator, value = option.partition("=")
            if separator and key == name:
                return value
        return None


def find_mount(path: str, table: str) -> Mount | None:
    """
    Return the mount that has `path`: the last one of those with the longest mount point.

    Args:
        path: an absolute path, symbolic links resolved.
        table: content of `/proc/self/mountinfo`.
    """
    best, where = "", ""
    for line in table.splitlines():
        # id, parent, device, root, point, options, ...: the rest is parsed only if needed.
        fields = line.split(" ", 5)
        if len(fields) < 6:
            continue
        point = _plain(fields[4])
        if len(point) >= len(where) and _is_below(path, point) and _parse(line) is not None:
            best, where = line, point
    return _parse(best)


def _parse(line: str) -> Mount | None:
    # id, parent, device, root, point, options, optional fields, "-", type, source, fs options
    front, separator, back = line.partition(" - ")
    fields, described = front.split(" "), back.split(" ")
    if not separator or len(fields) < 6 or len(described) < 3:
        return None
    kind, source, options = described[:3]
    flags = frozenset(fields[5].split(","))
    return Mount(_plain(fields[4]), kind, _plain(source), flags, frozenset(options.split(",")))


def _plain(text: str) -> str:
    """Return a field with its escapes (of blanks, tabs, ...) decoded."""
    if "\\" not in text:
        return text
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def _is_below(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")


def keeps_errors(directory: Path, *, mounts: Path = MOUNTS, release: str | None = None) -> bool:
    """Return whether the next sync of a file in `directory` reports a failed write-back."""
    mount = _mount_since(FIRST_KERNEL, directory, mounts, release)
    return mount is not None and mount_keeps_errors(mount)


def reports_errors_of_syncfs(
    directory: Path, *, mounts: Path = MOUNTS, release: str | None = None
) -> bool:
    """Return whether `syncfs` in `directory` reports every failed write since the descriptor was
    opened, and leaves nothing in a cache of the disk."""
    mount = _mount_since(FIRST_KERNEL_OF_SYNCFS, directory, mounts, release)
    return mount is not None and mount.kind == "ext4" and mount_keeps_errors(mount)


def _mount_since(
    first: tuple[int, int], directory: Path, mounts: Path, release: str | None
) -> Mount | None:
    """Return the mount of a directory if the kernel is new enough, and the mount is known."""
    version = kernel_version(os.uname().release if release is None else release)
    if sys.platform != "linux" or version is None or version < first:
        return None
    try:
        table = mounts.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None
    return find_mount(os.path.realpath(directory), table)


def kernel_version(release: str) -> tuple[int, int] | None:
    """Return the first two numbers of a kernel's release, or None if it has none."""
    match = _RELEASE.match(release)
    return None if match is None else (int(match[1]), int(match[2]))


def mount_keeps_errors(mount: Mount) -> bool:
    """Return whether a new enough kernel keeps the write-back errors of this file system."""
    return mount.kind in FILE_SYSTEMS and "data=journal" not in mount.options


def cache_id(directory: Path, *, boot_id: Path = BOOT_ID, system: Path = SYSTEM) -> bytes:
    """Return the id of the cache of a directory, ID_BYTES bytes; empty if unknown."""
    boot = _boot(boot_id)
    try:
        device = directory.stat().st_dev
    except OSError:
        return b""
    if not boot or sys.platform != "linux":
        return b""
    parts = (boot, device, _mounted(device, system))
    return hashlib.blake2b(repr(parts).encode(), digest_size=ID_BYTES).digest()


def file_in_cache(cache: bytes, facts: FileFacts | None) -> bytes:
    """
    Return the id of a file in a cache, ID_BYTES bytes: a copy of the file has another id.

    Args:
        cache: the result of `cache_id`; if it is empty, the id is zeros.
        facts: facts of the file; if it is absent, the id is zeros.
    """
    if facts is None or not cache:
        return bytes(ID_BYTES)
    named = cache + facts.file_id.to_bytes(16, "big")
    return hashlib.blake2b(named, digest_size=ID_BYTES).digest()


@cache
def _boot(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _mounted(device: int, system: Path) -> tuple[str, int] | None:
    """Return kind and kernel object of the mounted file system of a device, None if unknown."""
    block = system / "dev" / "block" / f"{os.major(device)}:{os.minor(device)}"
    try:
        name = block.readlink().name
    except OSError:
        return None
    for kind in KINDS:
        try:
            return kind, (system / "fs" / kind / name).stat().st_ino
        except OSError:
            continue
    return None
