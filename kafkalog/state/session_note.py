"""The session note of a data directory: in which cache all that was written since a clean stop is.

An opening of a data directory that was closed in order notes the cache that holds what is written
from then on (`FileSystem.cache_id`: another after each boot and each mount). As long as that is the
cache of the system, nothing that was written to the directory since is lost, whichever program
wrote it and however it ended: a partition without a sync journal ends where its last writer left
it, one that was closed a moment ago, or never written to, and one that a broker had, among them.

`.kafkalog_session` in the data directory, 28 bytes, big-endian: "kafkalog" (8), version 1 (4), a
digest of the cache and of the file's inode (8, so that a copy says nothing), zeros (4), CRC-32C of
the 24 bytes before (4).

It is not synced: a power cut that takes it, or brings an older one back, makes the cache another.
Crash points: before it is written there is none, or one of a session before, which is as true.

It is withdrawn by a log of this library that goes on without its sync journal, which alone says
where offsets were taken back.

Thread-safety: the holder of the directory's lock calls these functions, one at a time.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from pathlib import Path
from typing import Final

from kafkalog._core.crc32c import value as crc32c
from kafkalog.files.atomic_files import read_file
from kafkalog.files.filesystem import FileFacts, FileSystem
from kafkalog.files.mounts import file_in_cache
from kafkalog.files.names import SESSION_NOTE

__all__ = ["is_same_session", "withdraw_session_note", "write_session_note"]

logger = logging.getLogger(__name__)

_MAGIC: Final = b"kafkalog"
_VERSION: Final = 1
_FIELDS: Final = struct.Struct(">8sI8sI")
_SUM: Final = struct.Struct(">I")
_SIZE: Final = _FIELDS.size + _SUM.size


def write_session_note(filesystem: FileSystem, directory: Path) -> None:
    """Note that the directory was closed in order until now; no more than a log line if not."""
    path = directory / SESSION_NOTE
    try:
        handle = filesystem.create_new(path)
        try:
            handle.pwrite(_content(filesystem, directory, filesystem.stat(path)), 0)
        finally:
            handle.close()
    except OSError as error:
        logger.info("%s is not written: %s", path, error)


def is_same_session(filesystem: FileSystem, directory: Path) -> bool:
    """Return whether nothing of the directory was lost since it was last closed in order."""
    path = directory / SESSION_NOTE
    if not filesystem.cache_id(directory):
        return False
    try:
        data = read_file(filesystem, path, max_bytes=_SIZE)
        return data == _content(filesystem, directory, filesystem.stat(path))
    except (OSError, ValueError) as error:
        logger.info("%s is passed over: %s", path, error)
        return False


def withdraw_session_note(filesystem: FileSystem, directory: Path) -> None:
    """
    Let the note say nothing more.

    Raises:
        OSError: it cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        filesystem.unlink(directory / SESSION_NOTE)


def _content(filesystem: FileSystem, directory: Path, facts: FileFacts | None) -> bytes:
    digest = file_in_cache(filesystem.cache_id(directory), facts)
    fields = _FIELDS.pack(_MAGIC, _VERSION, digest, 0)
    return fields + _SUM.pack(crc32c(fields))
