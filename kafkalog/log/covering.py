"""Markers of segments that others take the place of: which segment each of them means.

A marker says how large the segment is, and the checksums of its first and last bytes. Should it be
found much later, after somebody else had the log in the meantime who did not know it, it means
nothing of what stands there then.

Thread-safety: pure functions over the disk. Errors pass as OSError.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kafkalog._core import crc32c
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileState, SegmentFiles
from kafkalog.files.whole import read_whole, write_synced

__all__ = ["is_covered", "marker_path", "write_marker"]

_EDGE_BYTES: Final = 4096
_MARKER_BYTES_MAX: Final = 2**31 - 1


def marker_path(directory: Path, base_offset: int) -> Path:
    """Return the path of a segment's marker."""
    return SegmentFiles(directory, base_offset, FileState.COVERED).log


def write_marker(filesystem: FileSystem, directory: Path, base_offset: int) -> None:
    """Mark a segment; its bytes are on the disk then, its name is the caller's to sync."""
    content = _identity(filesystem, SegmentFiles(directory, base_offset).log)
    write_synced(filesystem, marker_path(directory, base_offset), content)


def is_covered(filesystem: FileSystem, directory: Path, base_offset: int) -> bool:
    """Return whether a marker means the segment that stands there; True where none does."""
    path = SegmentFiles(directory, base_offset).log
    if filesystem.stat(path) is None:
        return True
    marker = marker_path(directory, base_offset)
    content = read_whole(filesystem, marker, max_bytes=_MARKER_BYTES_MAX)
    return content == _identity(filesystem, path)


def _identity(filesystem: FileSystem, path: Path) -> bytes:
    handle = filesystem.open(path)
    try:
        size = handle.size()
        edges = [handle.pread(_EDGE_BYTES, start) for start in (0, max(size - _EDGE_BYTES, 0))]
    finally:
        handle.close()
    head, tail = (crc32c.value(edge) for edge in edges)
    return b"%d %08x %08x\n" % (size, head, tail)
