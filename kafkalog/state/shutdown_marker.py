"""Clean-shutdown marker: a file that exists only if every log of a directory was closed.

`.kafka_cleanshutdown` contains `{"version":0,"brokerEpoch":17}` without a newline. Only its
existence counts; the content has the epoch of the broker that wrote it.

Order of changes that keeps the marker true:

  * it is written last, after all logs are flushed and closed and the checkpoints are written;
  * it is removed first, and the removal is on the disk before any other file of the directory
    changes. A crash at any later moment then counts as a crash.

Thread-safety: pure functions over the disk; the holder of the directory's lock calls them.
"""

from __future__ import annotations

import errno
import json
import logging
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import CLEAN_SHUTDOWN_MARKER

__all__ = [
    "UNKNOWN_BROKER_EPOCH",
    "ShutdownMarker",
    "read_shutdown_marker",
    "remove_shutdown_marker",
    "write_shutdown_marker",
]

logger = logging.getLogger(__name__)

UNKNOWN_BROKER_EPOCH: Final = -1
# Errors if the name is that of a FIFO, a socket, a device, a directory or a link.
_NO_FILE: Final = frozenset({errno.EINVAL, errno.EISDIR, errno.ELOOP})
_MAX_MARKER_BYTES: Final = 64 * 1024


class ShutdownMarker(NamedTuple):
    """A marker that exists; the epoch is None if its content has none."""

    broker_epoch: int | None


def read_shutdown_marker(filesystem: FileSystem, directory: Path) -> ShutdownMarker | None:
    """
    Return the directory's marker, or None if there is none: the last shutdown was not clean.

    An entry of that name which is not a file does not count.
    """
    path = directory / CLEAN_SHUTDOWN_MARKER
    with storage_errors(path, doing="reading"):
        try:
            data = read_file(filesystem, path, max_bytes=_MAX_MARKER_BYTES)
        except ValueError:
            return ShutdownMarker(None)
        except OSError as error:
            if error.errno not in _NO_FILE:
                raise
            logger.warning("%s is ignored: %s", path, error)
            return None
    return None if data is None else ShutdownMarker(_broker_epoch(data))


def _broker_epoch(data: bytes) -> int | None:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict) or type(content.get("version")) is not int:
        return None
    epoch = content.get("brokerEpoch")
    if type(epoch) is not int or not 0 <= epoch < 2**63:
        return None
    return epoch


def write_shutdown_marker(
    filesystem: FileSystem, directory: Path, *, broker_epoch: int = UNKNOWN_BROKER_EPOCH
) -> None:
    """Write the marker of the directory; it is on the disk when this returns."""
    path = directory / CLEAN_SHUTDOWN_MARKER
    text = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    with storage_errors(path, doing="writing"):
        try:
            replace_file(filesystem, path, text.encode())
        except IsADirectoryError as error:
            # Without the marker the next start recovers, which loses nothing.
            logger.warning("%s was not written: %s", path, error)


def remove_shutdown_marker(filesystem: FileSystem, directory: Path) -> bool:
    """
    Remove the marker; the removal is on the disk when this returns. Return whether it existed.

    The directory is synced in any case: a process that was killed may have removed the marker
    without a sync.
    """
    path = directory / CLEAN_SHUTDOWN_MARKER
    with storage_errors(path, doing="removing"):
        present = filesystem.stat(path) is not None
        if present:
            try:
                filesystem.unlink(path)
            except IsADirectoryError:
                present = False
        filesystem.sync_directory(directory)
    return present
