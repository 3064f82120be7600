"""The producer files of golden directories, and their logs cut where snapshots were taken."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.status import STATUS_CODES
from kafkalog.files.names import FileKind, FileState, SegmentFiles, try_parse_segment_file
from kafkalog.indexes.transaction_index import AbortedTransaction, decode_entries
from kafkalog.state.producer_snapshot import ProducerSnapshotEntry, decode_snapshot
from tests.support.golden import CLEAN, UNCLEAN, data_directory, partitions
from tests.support.golden_old import old_data_directory, old_partitions

__all__ = [
    "COMPACTED",
    "PARTITIONS",
    "PLAIN",
    "BatchSpan",
    "batch_spans",
    "broker_index",
    "files_of",
    "identify",
    "scanned",
    "snapshots",
]

CAPACITY = 4096


def interesting() -> list[Path]:
    """Return the partition directories in which a broker had producers."""
    found = [data_directory(name) / each for name in (CLEAN, UNCLEAN) for each in partitions(name)]
    found += [old_data_directory("kafka-2.8") / each for each in old_partitions("kafka-2.8")]
    return [path for path in found if any(snapshots(path).values())]


@dataclass(frozen=True)
class BatchSpan:
    """Batches of one segment that follow each other, and where they end."""

    base_offset: int
    data: memoryview
    columns: BatchColumns
    end_offset: int


def files_of(directory: Path, kind: FileKind) -> dict[int, Path]:
    """Return the live files of one kind by offset, ascending."""
    found = {}
    for path in sorted(directory.iterdir()):
        name = try_parse_segment_file(path.name)
        if name is not None and name.kind is kind and name.state is FileState.LIVE:
            found[name.base_offset] = path
    return found


def snapshots(directory: Path) -> dict[int, list[ProducerSnapshotEntry]]:
    """Return the entries of each snapshot by offset."""
    files = files_of(directory, FileKind.SNAPSHOT)
    return {offset: decode_snapshot(path.read_bytes()) for offset, path in files.items()}


def broker_index(directory: Path, base_offset: int) -> list[AbortedTransaction]:
    """Return the broker's transaction index of a segment."""
    path = SegmentFiles(directory, base_offset).transaction_index
    return decode_entries(path.read_bytes(), base_offset) if path.exists() else []


def scanned(data: memoryview) -> BatchColumns:
    """Return the headers of all batches."""
    columns = BatchColumns(CAPACITY)
    result = scan_batches(data, columns=columns)
    assert STATUS_CODES["OK"] == result.status
    return columns


def batch_spans(directory: Path) -> Iterator[BatchSpan]:
    """Yield the log in order, cut where segments begin and where snapshots were taken."""
    cuts = list(snapshots(directory))
    for base_offset, path in files_of(directory, FileKind.LOG).items():
        data = memoryview(path.read_bytes())
        columns = scanned(data)
        count = len(columns)
        rows = [int(np.searchsorted(columns.last_offset[:count], cut)) for cut in cuts]
        borders = sorted({0, count, *rows})
        for first, end in pairwise(borders):
            start = int(columns.position[first])
            stop = int(columns.position[end - 1] + columns.size_bytes[end - 1])
            part = data[start:stop]
            last = int(columns.last_offset[end - 1])
            yield BatchSpan(base_offset, part, scanned(part), last + 1)


PARTITIONS = interesting()
COMPACTED = [path for path in PARTITIONS if path.name.startswith("compact-")]
PLAIN = [path for path in PARTITIONS if path not in COMPACTED]


def identify(path: Path) -> str:
    """Return a short name for a parameter."""
    return f"{path.parent.parent.name}/{path.name}"
