"""Readers of committed records get the records of a broker's consumers, by either's indexes.

The last stable offset comes from the replay; aborted transactions come from the broker's
`.txnindex` files, or from the replay too, as if the files were missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kafkalog import BatchView, Record
from kafkalog.files.names import FileKind, SegmentFiles
from kafkalog.files.posix import PosixFileSystem
from kafkalog.indexes.transaction_index import (
    AbortedTransaction,
    TransactionIndex,
    collect_aborted,
)
from kafkalog.log.isolation import AbortedRecords
from kafkalog.log.producer_replay import aborted_of, replay_batches
from kafkalog.state.producers import ProducerStates
from tests.golden_directories.producer_files import PARTITIONS, batch_spans, files_of, identify
from tests.support.column_rows import rows_of_columns
from tests.support.golden import Manifest, canonical_hash
from tests.support.golden_old import OldManifest, rendered

TRANSACTIONAL = [path for path in PARTITIONS if files_of(path, FileKind.TRANSACTION_INDEX)]
OLD = [path for path in TRANSACTIONAL if path.parent.name == "kafka-2.8"]
NEW = [path for path in TRANSACTIONAL if path not in OLD]


@cache
def replayed(directory: Path) -> tuple[ProducerStates, tuple[AbortedTransaction, ...]]:
    """Return the state at the log end, and the transactions aborted before it."""
    states = ProducerStates(directory)
    aborted: list[AbortedTransaction] = []
    for span in batch_spans(directory):
        aborted += aborted_of(replay_batches(states, span.data, span.columns))
    return states, tuple(aborted)


def indexed(directory: Path, start: int, end: int) -> list[AbortedTransaction]:
    """Return the aborted transactions of a range of offsets by the broker's indexes."""

    def indexes() -> Iterator[TransactionIndex]:
        for base_offset in files_of(directory, FileKind.LOG):
            path = SegmentFiles(directory, base_offset).transaction_index
            index = TransactionIndex(PosixFileSystem(), path, base_offset, read_only=True)
            index.load()
            yield index

    return collect_aborted(indexes(), start, end)


def committed(directory: Path, aborted: AbortedRecords, start: int, end: int) -> Iterator[Record]:
    """Yield the records of a range of offsets that a reader of committed records sees."""
    for span in batch_spans(directory):
        columns = span.columns
        for row in range(len(columns)):
            position, size = int(columns.position[row]), int(columns.size_bytes[row])
            batch = BatchView(span.data[position : position + size])
            if batch.header.is_control or aborted.is_hidden(batch.header):
                continue
            yield from (each for each in batch.records() if start <= each.offset < end)


def test_transactional_partitions_of_both_ages_exist() -> None:
    """The tests below have parameters."""
    assert (3, 5) <= (len(OLD), len(NEW))


@pytest.mark.parametrize("source", ["index", "replay"])
@pytest.mark.parametrize("directory", NEW, ids=identify)
def test_committed_records_of_kafka_4_1_equal_the_manifest(directory: Path, source: str) -> None:
    """Count, hash, and every run of offsets; the end is the last stable offset."""
    fact = Manifest(directory.parent.parent.name, directory.name).summary.read_committed
    assert fact is not None
    start, end = fact.beginning_offset, fact.end_offset
    states, from_replay = replayed(directory)
    states.advance_high_watermark(states.end_offset)
    assert end == states.last_stable_offset(states.end_offset)
    found = indexed(directory, start, end) if source == "index" else from_replay
    records = list(committed(directory, AbortedRecords(found), start, end))
    assert fact.data == canonical_hash(records)
    inside = {offset for first, last in fact.offset_ranges for offset in range(first, last + 1)}
    assert inside == {record.offset for record in records}


@pytest.mark.parametrize("source", ["index", "replay"])
@pytest.mark.parametrize("directory", OLD, ids=identify)
def test_committed_records_of_kafka_2_8_equal_its_consumer(directory: Path, source: str) -> None:
    """The end is the last stable offset; the records are hashed as in the manifest."""
    fact = OldManifest("kafka-2.8", directory.name).summary.consumer_committed
    assert fact is not None
    states, from_replay = replayed(directory)
    states.advance_high_watermark(states.end_offset)
    end = states.last_stable_offset(states.end_offset)
    assert fact.end_offset == end
    found = indexed(directory, 0, end) if source == "index" else from_replay
    assert fact.rendered == rendered(committed(directory, AbortedRecords(found), 0, end))


@pytest.mark.parametrize("directory", NEW, ids=identify)
def test_aborted_of_any_range_by_index_equal_the_replay(directory: Path) -> None:
    """Ranges of all sizes: a search that ended early would show aborted records."""
    states, from_replay = replayed(directory)
    batches = [
        BatchView(span.data[position : position + size]).header
        for span in batch_spans(directory)
        for position, size in rows_of_columns(span.columns, ("position", "size_bytes"))
    ]
    everything = AbortedRecords(from_replay)
    for start in range(0, states.end_offset, max(1, states.end_offset // 7)):
        for size in (1, 10, 100, 1000):
            aborted = AbortedRecords(indexed(directory, start, start + size))
            for header in batches:
                if start <= header.base_offset < start + size and not header.is_control:
                    assert everything.is_hidden(header) == aborted.is_hidden(header)


def test_aborted_records_without_transactions_are_false() -> None:
    """Readers skip the check of each batch if the object is false."""
    assert not AbortedRecords([])
    assert AbortedRecords([AbortedTransaction(1, 2, 3, 4)])
