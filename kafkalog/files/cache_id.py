"""What names the cache of a file system: whether written bytes may have been lost without a sync.

Written bytes stay in the memory of the kernel until the disk has them. A process that is killed
loses none of them; a power cut, or a file system that is shut down and mounted again, may. So two
openings of a file whose ids are the same show the same bytes, synced or not.

The id is made of the boot (`boot_id` of the kernel), the device, and the kernel's object of the
mounted file system in `/sys/fs`, which is another one after each mount. A file system without such
an object (a network's, or one of a container's layers) has the boot and the device alone.

Thread-safety: a pure function over files of the system. Never raises: what is not known is empty.
"""

from __future__ import annotations

import hashlib
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalog.files.filesystem import FileFacts

__all__ = ["ID_BYTES", "cache_id", "file_in_cache"]

ID_BYTES: Final = 8
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
SYSTEM: Final = Path("/sys")
# Kinds of file systems that have one object for each device that is mounted.
KINDS: Final = ("ext4", "xfs", "f2fs", "erofs")


def cache_id(directory: Path, *, boot_id: Path = BOOT_ID, system: Path = SYSTEM) -> bytes:
    """Return ID_BYTES bytes that name the cache behind a directory; none where not known."""
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
    Return ID_BYTES bytes that name a file in a cache: a copy of it has another name.

    Args:
        cache: what `cache_id` says; zeros are returned where it is empty.
        facts: of the file; zeros are returned where it is absent.
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
    """Return what names the mounted file system of a device, None where nothing does."""
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
