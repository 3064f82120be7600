"""Which files of segments lie in a partition directory.

Thread-safety: pure functions over the disk. Errors pass as OSError.
"""

from __future__ import annotations

from pathlib import Path

from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileKind, SegmentFileName, try_parse_segment_file

__all__ = ["live_offsets", "segment_files"]


def segment_files(filesystem: FileSystem, directory: Path) -> list[SegmentFileName]:
    """Return the names of all files of segments, whatever their state, in the disk's order."""
    parsed = map(try_parse_segment_file, filesystem.list(directory))
    return [name for name in parsed if name is not None]


def live_offsets(filesystem: FileSystem, directory: Path, kind: FileKind) -> list[int]:
    """Return the offsets in the names of all live files of one kind, ascending."""
    # A live file's name ends with its kind; of a log of many segments most do not end with this.
    names = (name for name in filesystem.list(directory) if name.endswith(kind))
    return sorted(
        parsed.base_offset for parsed in map(try_parse_segment_file, names) if parsed is not None
    )
