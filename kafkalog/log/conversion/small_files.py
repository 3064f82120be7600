"""Small files next to the segments of a log, copied if they are still valid.

They refer to offsets, which a conversion keeps. Only the transaction index depends on the bounds of
segments: an entry belongs to the segment with the marker of its transaction, which may be another
one after a split.

Thread-safety: pure functions over the disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kafkalog.errors import CorruptIndexError
from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.directories import live_offsets
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    FileKind,
    SegmentFiles,
)
from kafkalog.indexes.transaction_index import (
    AbortedTransaction,
    decode_entries,
    encode_entries,
)
from kafkalog.log.conversion.new_directory import copy_file
from kafkalog.log.conversion.outcome import SkippedBytes
from kafkalog.log.reading import OnCorrupt

__all__ = ["copy_partition_files", "split_transaction_index"]

_INDEX_BYTES_MAX: Final = 2**31 - 1


def copy_partition_files(
    filesystem: FileSystem,
    source: Path,
    target: Path,
    bases: Sequence[int],
    *,
    on_corrupt: OnCorrupt,
) -> list[SkippedBytes]:
    """
    Copy leader epochs, metadata, producer snapshots and transaction indexes of a log.

    Args:
        filesystem: the disk of both.
        source, target: partition directories.
        bases: base offsets of the target's segments; files below the first are left out.
        on_corrupt: for a damaged transaction index: "raise", or "skip" to copy it unchanged if its
            segment still has the same base offset.

    Returns:
        The files that could not be read.

    Raises:
        CorruptIndexError: a transaction index is damaged, with on_corrupt="raise".
    """
    odd: list[SkippedBytes] = []
    for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
        copy_file(filesystem, source / name, target / name)
    for base in live_offsets(filesystem, source, FileKind.SNAPSHOT):
        if base >= bases[0]:
            ours, theirs = SegmentFiles(source, base), SegmentFiles(target, base)
            copy_file(filesystem, ours.path(FileKind.SNAPSHOT), theirs.path(FileKind.SNAPSHOT))
    for base in live_offsets(filesystem, source, FileKind.TRANSACTION_INDEX):
        path = SegmentFiles(source, base).transaction_index
        try:
            contents = split_transaction_index(filesystem, SegmentFiles(source, base), bases)
        except CorruptIndexError as error:
            if on_corrupt == "raise":
                raise
            same = SegmentFiles(target, base).transaction_index
            kept = base in bases and copy_file(filesystem, path, same)
            odd.append(_unreadable(filesystem, path, error, kept=kept))
            continue
        for begins, content in contents.items():
            replace_file(filesystem, SegmentFiles(target, begins).transaction_index, content)
    return odd


def split_transaction_index(
    filesystem: FileSystem, files: SegmentFiles, bases: Sequence[int]
) -> dict[int, bytes]:
    """
    Return the transaction index of one segment, split over the segments that replace it.

    Args:
        filesystem: the disk.
        files: files of the segment.
        bases: base offsets of the segments that have its records now.

    Raises:
        CorruptIndexError: it is damaged.
    """
    path = files.transaction_index
    data = read_file(filesystem, path, max_bytes=_INDEX_BYTES_MAX)
    if data is None:
        return {}
    entries = decode_entries(data, files.base_offset, path=path)
    found: dict[int, list[AbortedTransaction]] = defaultdict(list)
    for entry in entries:
        slot = bisect_right(bases, entry.last_offset) - 1
        if slot >= 0:
            found[bases[slot]].append(entry)
    return {base: encode_entries(moved) for base, moved in found.items()}


def _unreadable(
    filesystem: FileSystem, path: Path, error: CorruptIndexError, *, kept: bool
) -> SkippedBytes:
    facts = filesystem.stat(path)
    size = 0 if facts is None else facts.size_bytes
    return SkippedBytes(path, 0, size, -1, -1, str(error), kept=kept)
