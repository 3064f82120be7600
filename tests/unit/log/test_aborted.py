"""Aborted transactions of an open log and of a directory: ranges, hidden batches, stable end."""

from __future__ import annotations

import pytest

from kafkalog._core.header import BatchHeader, parse_header
from kafkalog.files.names import FileKind, SegmentFiles
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.aborted import (
    aborted_between,
    aborted_in_log,
    aborted_on_disk,
    has_none_open,
    last_stable_offset,
)
from kafkalog.log.isolation import AbortedBatches
from tests.support.log_parts import DIRECTORY, LogParts
from tests.support.producer_batches import Produced

P, Q, R = 7, 8, 9
ABORTED = [AbortedTransaction(P, 0, 3, 2), AbortedTransaction(Q, 2, 5, 6)]
END = 8


def filled() -> LogParts:
    """Return three segments: P is aborted in the first, Q in the second, R is open."""
    parts = LogParts()
    parts.append(
        Produced(P, count=2, transactional=True),
        Produced(Q, transactional=True),
        Produced(P, ends="abort"),
    )
    parts.roll()
    parts.append(
        Produced(Q, sequence=1, transactional=True), Produced(Q, ends="abort"), Produced(-1)
    )
    parts.roll()
    parts.append(Produced(R, transactional=True))
    return parts


def headers(parts: LogParts) -> list[BatchHeader]:
    """Return the headers of all batches."""
    found = []
    for segment in parts.local.snapshot.segments.segments:
        data, position = segment.file.whole(), 0
        while position < segment.size_bytes:
            found.append(parse_header(data, position))
            position = found[-1].end_position
    return found


def hidden(parts: LogParts, batches: AbortedBatches) -> list[int]:
    """Return the base offsets of the hidden batches."""
    return [each.base_offset for each in headers(parts) if batches.is_hidden(each)]


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (0, 8, ABORTED),
        (0, 2, ABORTED[:1]),
        (0, 3, ABORTED),
        (4, 6, ABORTED[1:]),
        (6, 8, []),
        (3, 3, []),
        (5, 2, []),
    ],
)
def test_aborted_between_returns_the_transactions_of_the_range(
    start: int, end: int, expected: list[AbortedTransaction]
) -> None:
    """A transaction counts from its first record to its marker, also across segments."""
    parts = filled()
    assert expected == aborted_between(parts.local.context, parts.local.snapshot, start, end)


def test_aborted_in_log_hides_the_batches_of_aborted_transactions() -> None:
    """Markers, batches without a producer and open transactions are not hidden."""
    parts = filled()
    batches = aborted_in_log(parts.local.context, parts.local.snapshot, END)
    assert [0, 2, 4] == hidden(parts, batches)


@pytest.mark.parametrize("removed", [(), (0,), (4,), (0, 4)])
def test_aborted_on_disk_without_some_indexes_hides_the_same_batches(
    removed: tuple[int, ...],
) -> None:
    """If an index lacks a marker of its segment, the batches are replayed; nothing is written."""
    parts = filled()
    for base_offset in removed:
        parts.disk.unlink(SegmentFiles(DIRECTORY, base_offset).path(FileKind.TRANSACTION_INDEX))
    before = parts.disk.snapshot()
    assert [0, 2, 4] == hidden(parts, aborted_on_disk(parts.disk, DIRECTORY, END))
    assert before == parts.disk.snapshot()


def test_aborted_on_disk_of_a_damaged_index_replays_the_batches() -> None:
    """An index with half an entry is not used."""
    parts = filled()
    path = SegmentFiles(DIRECTORY, 4).path(FileKind.TRANSACTION_INDEX)
    handle = parts.disk.open(path, write=True)
    handle.truncate(handle.size() // 2)
    handle.close()
    assert [0, 2, 4] == hidden(parts, aborted_on_disk(parts.disk, DIRECTORY, END))


@pytest.mark.parametrize(("end", "expected"), [(8, 7), (6, 6), (4, 2), (3, 0), (0, 0)])
def test_last_stable_offset_is_the_first_offset_of_an_open_transaction(
    end: int, expected: int
) -> None:
    """A marker above the end of the range does not end its transaction."""
    parts = filled()
    assert expected == last_stable_offset(parts.disk, DIRECTORY, 0, end)


def test_has_none_open_reads_the_producer_snapshot() -> None:
    """At offset 4 the transaction of Q is open from offset 2 on; at offset 7 none is open."""
    parts = filled()
    disk = parts.disk
    assert has_none_open(disk, DIRECTORY, 7, END)
    assert not has_none_open(disk, DIRECTORY, 4, 3)
    assert has_none_open(disk, DIRECTORY, 4, 2)
    assert not has_none_open(disk, DIRECTORY, 5, END), "a missing snapshot"
    handle = disk.open(SegmentFiles(DIRECTORY, 7).path(FileKind.SNAPSHOT), write=True)
    handle.pwrite(b"\xff" * 8, 0)
    handle.close()
    assert not has_none_open(disk, DIRECTORY, 7, END)
