"""Session note of a data directory: the id of the cache that has all writes since a clean stop.

An opening of a data directory that was closed cleanly records the id of the cache that has all
later writes (`FileSystem.cache_id`: a new one after each boot and each mount). As long as the id is
that of the system's cache, no write to the directory since then is lost, whichever program made it
and however that program ended. So a partition without a sync journal ends where its last writer
left it; this includes a partition that was just closed, was never written to, or was written by a
broker.

`.kafkalog_session` in the data directory, 28 bytes, big-endian: "kafkalog" (8), version 1 (4), a
digest of the cache and of the file's inode (8, so that a copy is invalid), zeros (4), CRC-32C of
the 24 bytes before (4).

The note is not synced: a power cut that removes it, or restores an older one, also changes the
cache. Crash points: before it is written there is no note, or that of an earlier session, which is
equally true.

A log of this library withdraws the note when it continues without its sync journal, because only
the journal records that offsets were taken back.

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
    """Record that the directory was closed cleanly until now; an error is logged only."""
    path = directory / SESSION_NOTE
    try:
        handle = filesystem.create_new(path)
        try:
            handle.pwrite(_content(filesystem, directory, filesystem.stat(path)), 0)
        finally:
            handle.close()
    except OSError as error:
        logger.info("%s was not written: %s", path, error)


def is_same_session(filesystem: FileSystem, directory: Path) -> bool:
    """Return whether no write to the directory was lost since it was last closed cleanly."""
    path = directory / SESSION_NOTE
    if not filesystem.cache_id(directory):
        return False
    try:
        data = read_file(filesystem, path, max_bytes=_SIZE)
        return data == _content(filesystem, directory, filesystem.stat(path))
    except (OSError, ValueError) as error:
        logger.info("%s is ignored: %s", path, error)
        return False


def withdraw_session_note(filesystem: FileSystem, directory: Path) -> None:
    """
    Remove the note, if there is one.

    Raises:
        OSError: the note cannot be removed.
    """
    with contextlib.suppress(FileNotFoundError):
        filesystem.unlink(directory / SESSION_NOTE)


def _content(filesystem: FileSystem, directory: Path, facts: FileFacts | None) -> bytes:
    digest = file_in_cache(filesystem.cache_id(directory), facts)
    fields = _FIELDS.pack(_MAGIC, _VERSION, digest, 0)
    return fields + _SUM.pack(crc32c(fields))
