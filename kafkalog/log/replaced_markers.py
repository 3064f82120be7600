"""The mark of an exchange: which old segments leave, and which new ones take their place.

An exchange (`kafkalog.log.replacement`) writes one mark, `<lowest base>.log.covered`, before the
first rename, and removes it after the last. The mark names each old and each new file by base
offset, size and the checksums of its first and last bytes. It allows nothing by itself: it counts
only together with the very new files that it names, at least one of them still `.swap`, and only
for the very old files that it names. Where a broker had the directory in between, which knows no
marks, the `.swap` files are gone or have their names, and the mark counts no more.

Format, ASCII: a line `kafkalog exchange 1`, a line `old BASE SIZE HEAD TAIL` for each old file, a
line `new BASE SIZE HEAD TAIL` for each new one, a line `sum CRC` over all lines before it.

Crash points: those of the exchange. A mark that was torn by a power cut has a wrong sum, and counts
as absent.

Thread-safety: pure functions over the disk. Errors pass as OSError.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog._core import crc32c
from kafkalog.files.atomic_files import read_file, write_synced
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import FileState, SegmentFiles

__all__ = [
    "FileIdentity",
    "ReplacedMarker",
    "identity_of",
    "read_replaced_marker",
    "replaced_marker_path",
    "write_replaced_marker",
]

_EDGE_BYTES: Final = 4096
_MARK_BYTES_MAX: Final = 16 << 20
_HEAD: Final = "kafkalog exchange 1"


class FileIdentity(NamedTuple):
    """Base offset, size and checksums of the first and last 4,096 bytes of a `.log` file."""

    base_offset: int
    size_bytes: int
    head_crc: int
    tail_crc: int


@dataclass(frozen=True, slots=True)
class ReplacedMarker:
    """
    The content of a mark.

    Attributes:
        leaving: identities of the old files.
        fresh: identities of the new files.
    """

    leaving: tuple[FileIdentity, ...]
    fresh: tuple[FileIdentity, ...]

    def encode(self) -> bytes:
        """Return the mark as the bytes of its file."""
        lines = [_HEAD]
        for word, identities in (("old", self.leaving), ("new", self.fresh)):
            lines += [f"{word} {a} {b} {c:08x} {d:08x}" for a, b, c, d in identities]
        body = ("\n".join(lines) + "\n").encode()
        return body + b"sum %08x\n" % crc32c.value(body)


def replaced_marker_path(directory: Path, base_offset: int) -> Path:
    """Return the path of the mark of an exchange whose lowest base offset is `base_offset`."""
    return SegmentFiles(directory, base_offset, FileState.COVERED).log


def write_replaced_marker(
    filesystem: FileSystem, directory: Path, leaving: Sequence[int], fresh: Sequence[int]
) -> None:
    """
    Write a mark onto the disk; the caller syncs its name.

    Args:
        filesystem, directory: the partition.
        leaving: base offsets of the live old segments.
        fresh: base offsets of the new ones, whose files are `.cleaned`.
    """
    mark = ReplacedMarker(
        tuple(identity_of(filesystem, SegmentFiles(directory, base)) for base in leaving),
        tuple(
            identity_of(filesystem, SegmentFiles(directory, base, FileState.CLEANED))
            for base in fresh
        ),
    )
    write_synced(filesystem, replaced_marker_path(directory, min(fresh)), mark.encode())


def read_replaced_marker(filesystem: FileSystem, path: Path) -> ReplacedMarker | None:
    """Return the content of a mark; None if it is absent, torn, or of another version."""
    try:
        content = read_file(filesystem, path, max_bytes=_MARK_BYTES_MAX)
    except ValueError:
        return None
    if content is None:
        return None
    body, _, checksum = content[:-1].rpartition(b"\n")
    body += b"\n"
    if checksum != b"sum %08x" % crc32c.value(body):
        return None
    head, *lines = body.decode("ascii", "replace").splitlines()
    if head != _HEAD:
        return None
    found: dict[str, list[FileIdentity]] = {"old": [], "new": []}
    for line in lines:
        word, base, size, first, last = line.split(" ")
        found[word].append(FileIdentity(int(base), int(size), int(first, 16), int(last, 16)))
    return ReplacedMarker(tuple(found["old"]), tuple(found["new"]))


def identity_of(filesystem: FileSystem, files: SegmentFiles) -> FileIdentity:
    """
    Return the identity of a segment's `.log` file.

    Raises:
        FileNotFoundError: there is no such file.
    """
    handle = filesystem.open(files.log)
    try:
        size = handle.size()
        edges = [handle.pread(_EDGE_BYTES, start) for start in (0, max(size - _EDGE_BYTES, 0))]
    finally:
        handle.close()
    head, tail = (crc32c.value(edge) for edge in edges)
    return FileIdentity(files.base_offset, size, head, tail)
