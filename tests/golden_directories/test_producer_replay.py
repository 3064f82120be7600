"""A replay of brokers' logs gives the producer snapshots and transaction indexes they wrote."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kafkalog.files.names import FileKind
from kafkalog.indexes.transaction_index import AbortedTransaction
from kafkalog.log.producer_replay import aborted_of, replay_batches
from kafkalog.state.producer_snapshot import encode_snapshot
from kafkalog.state.producers import ProducerStates
from tests.golden_directories.producer_files import (
    COMPACTED,
    PLAIN,
    batch_spans,
    broker_index,
    files_of,
    identify,
    snapshots,
)

# Its producer of test times in 2023 had expired: the broker was started again three years later.
WITH_EXPIRED = "u-log-1"


def test_partitions_of_both_kinds_exist() -> None:
    """The tests below have parameters."""
    assert len(COMPACTED) >= 6
    assert len(PLAIN) >= 15
    assert any(broker_index(path, base) for path in PLAIN for base in files_of(path, FileKind.LOG))


@pytest.mark.parametrize("directory", PLAIN, ids=identify)
def test_replay_from_the_log_start_gives_every_snapshot_and_index(directory: Path) -> None:
    """Byte for byte: each snapshot at its offset, and every aborted transaction."""
    expected = snapshots(directory)
    files = files_of(directory, FileKind.SNAPSHOT)
    bases = list(files_of(directory, FileKind.LOG))
    states = ProducerStates(directory, end_offset=bases[0])
    aborted: dict[int, list[AbortedTransaction]] = {base: [] for base in bases}
    compared = 0
    for span in batch_spans(directory):
        completed = replay_batches(states, span.data, span.columns)
        aborted[span.base_offset] += aborted_of(completed)
        assert span.end_offset == states.end_offset
        if span.end_offset not in expected:
            continue
        found = list(states.snapshot_entries())
        if directory.name == WITH_EXPIRED:
            producer_ids = {entry.producer_id for entry in expected[span.end_offset]}
            assert {each.producer_id for each in found} - producer_ids <= {1}
            found = [each for each in found if each.producer_id in producer_ids]
        assert files[span.end_offset].read_bytes() == encode_snapshot(found)
        compared += 1
    assert compared
    for base in bases:
        assert broker_index(directory, base) == aborted[base]


@pytest.mark.parametrize(
    "directory", [path for path in PLAIN if path.name != WITH_EXPIRED], ids=identify
)
def test_replay_from_each_snapshot_equals_replay_from_the_log_start(directory: Path) -> None:
    """A start may load any snapshot; only the window is shorter: a snapshot has one batch."""
    parts = list(batch_spans(directory))
    for offset, entries in snapshots(directory).items():
        states = ProducerStates(directory)
        states.load(entries, offset)
        whole = ProducerStates(directory)
        for span in parts:
            replay_batches(whole, span.data, span.columns)
            if span.end_offset > offset:
                replay_batches(states, span.data, span.columns)
        assert sorted(whole.snapshot_entries()) == sorted(states.snapshot_entries())
        assert whole.open_transactions() == states.open_transactions()
        for producer_id, entry in states.entries.items():
            # A snapshot has the time of a later marker, not the time of its batch.
            window = [batch[:3] for batch in whole.entries[producer_id].batches]
            batches = [batch[:3] for batch in entry.batches]
            assert window[len(window) - len(batches) :] == batches


@pytest.mark.parametrize("directory", COMPACTED, ids=identify)
def test_replay_of_a_compacted_log_finds_every_aborted_record_left(
    directory: Path,
) -> None:
    """The broker's index also has transactions whose records compaction has removed."""
    bases = list(files_of(directory, FileKind.LOG))
    states = ProducerStates(directory, end_offset=bases[0])
    aborted: dict[int, list[AbortedTransaction]] = {base: [] for base in bases}
    kept: list[tuple[int, int, int]] = []
    for span in batch_spans(directory):
        completed = replay_batches(states, span.data, span.columns)
        aborted[span.base_offset] += aborted_of(completed)
        columns = span.columns
        rows = np.flatnonzero(
            (columns.attributes[: len(columns)] & 0x30 == 0x10)
            & (columns.record_count[: len(columns)] > 0)
        )
        fields = (columns.producer_id, columns.base_offset, columns.last_offset)
        kept += zip(*(field[rows].tolist() for field in fields), strict=True)
    for base in bases:
        ours = {(each.producer_id, each.last_offset) for each in aborted[base]}
        for entry in broker_index(directory, base):
            if (entry.producer_id, entry.last_offset) in ours:
                ours.remove((entry.producer_id, entry.last_offset))
                continue
            assert not [
                first
                for producer_id, first, last in kept
                if producer_id == entry.producer_id
                and entry.first_offset <= first
                and last < entry.last_offset
            ]
        assert not ours
