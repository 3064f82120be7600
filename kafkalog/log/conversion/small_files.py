"""The small files beside the segments of a log, taken over where they are still true.

They speak of offsets, and a conversion keeps those. Only the transaction index depends on where
segments begin: an entry stands with the segment that holds the marker of its transaction, which
matters where a segment was split.

Thread-safety: pure functions over the disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kafkalog.errors import CorruptIndexError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    FileKind,
    FileState,
    SegmentFiles,
    try_parse_segment_file,
)
from kafkalog.files.whole import read_whole, replace_whole
from kafkalog.indexes.transaction_index import (
    AbortedTransaction,
    decode_entries,
    encode_entries,
)
from kafkalog.log.conversion.new_directory import carry_file
from kafkalog.log.conversion.outcome import LeftOut
from kafkalog.log.reading import OnCorrupt

__all__ = ["carry_partition_files", "split_transaction_index"]

_INDEX_BYTES_MAX: Final = 2**31 - 1


def carry_partition_files(
    filesystem: FileSystem,
    source: Path,
    target: Path,
    bases: Sequence[int],
    *,
    on_corrupt: OnCorrupt,
) -> list[LeftOut]:
    """
    Copy leader epochs, metadata, producer snapshots and transaction indexes of a log.

    Args:
        filesystem: the disk of both.
        source, target: partition directories.
        bases: base offsets of the target's segments; what lies below the first is left out.
        on_corrupt: what to do with a damaged transaction index: "skip" takes it over as it is,
            where its segment still begins there.

    Returns:
        The files that could not be read.

    Raises:
        CorruptIndexError: a transaction index is damaged, with on_corrupt="raise".
    """
    odd: list[LeftOut] = []
    for name in (LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA):
        carry_file(filesystem, source / name, target / name)
    for name in filesystem.list(source):
        parsed = try_parse_segment_file(name)
        if parsed is None or parsed.state is not FileState.LIVE:
            continue
        if parsed.kind is FileKind.SNAPSHOT and parsed.base_offset >= bases[0]:
            carry_file(filesystem, source / name, target / name)
        elif parsed.kind is FileKind.TRANSACTION_INDEX:
            files = SegmentFiles(source, parsed.base_offset)
            try:
                contents = split_transaction_index(filesystem, files, bases)
            except CorruptIndexError as error:
                if on_corrupt == "raise":
                    raise
                kept = parsed.base_offset in bases and carry_file(
                    filesystem, source / name, target / name
                )
                odd.append(_unreadable(filesystem, source / name, error, kept=kept))
                continue
            for base, content in contents.items():
                path = SegmentFiles(target, base).transaction_index
                replace_whole(filesystem, path, content)
    return odd


def split_transaction_index(
    filesystem: FileSystem, files: SegmentFiles, bases: Sequence[int]
) -> dict[int, bytes]:
    """
    Return the transaction index of one segment, as the contents of those of others.

    Args:
        filesystem: the disk.
        files: the segment's.
        bases: where the segments begin that hold its records now.

    Raises:
        CorruptIndexError: it is damaged.
    """
    path = files.transaction_index
    data = read_whole(filesystem, path, max_bytes=_INDEX_BYTES_MAX)
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
) -> LeftOut:
    facts = filesystem.stat(path)
    size = 0 if facts is None else facts.size_bytes
    return LeftOut(path, 0, size, -1, -1, str(error), kept=kept)
