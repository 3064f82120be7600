"""Replaying brokers' logs gives the producer snapshots and transaction indexes that they wrote."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog._core.status import STATUS_CODES
from kafkalog.files.names import FileKind, FileState, SegmentFiles, try_parse_segment_file
from kafkalog.indexes.transaction_index import AbortedTransaction, decode_entries
from kafkalog.log.producer_recovery import aborted_of, replay_batches
from kafkalog.state.producer_snapshot import (
    ProducerSnapshotEntry,
    decode_snapshot,
    encode_snapshot,
)
from kafkalog.state.producers import ProducerStates
from tests.support.golden import CLEAN, UNCLEAN, data_directory, partitions
from tests.support.golden_old import old_data_directory, old_partitions

CAPACITY = 4096


def interesting() -> list[Path]:
    """Return the partition directories in which a broker knew of producers."""
    found = [data_directory(name) / each for name in (CLEAN, UNCLEAN) for each in partitions(name)]
    found += [old_data_directory("kafka-2.8") / each for each in old_partitions("kafka-2.8")]
    return [path for path in found if any(snapshots(path).values())]


@dataclass(frozen=True)
class Stretch:
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


def stretches(directory: Path) -> Iterator[Stretch]:
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
            yield Stretch(base_offset, part, scanned(part), last + 1)


PARTITIONS = interesting()
COMPACTED = [path for path in PARTITIONS if path.name.startswith("compact-")]
PLAIN = [path for path in PARTITIONS if path not in COMPACTED]
# Its producer of test times in 2023 was silent for three years when the broker was started again.
WITH_EXPIRED = "u-log-1"


def identify(path: Path) -> str:
    """Return a short name for a parameter."""
    return f"{path.parent.parent.name}/{path.name}"


def test_there_are_partitions_of_both_kinds() -> None:
    """The parameters of the tests below are there."""
    assert len(COMPACTED) >= 6
    assert len(PLAIN) >= 15
    assert any(broker_index(path, base) for path in PLAIN for base in files_of(path, FileKind.LOG))


@pytest.mark.parametrize("directory", PLAIN, ids=identify)
def test_replay_from_the_start_gives_every_snapshot_and_index(directory: Path) -> None:
    """Byte for byte: what was known where the broker took it, and every aborted transaction."""
    expected = snapshots(directory)
    files = files_of(directory, FileKind.SNAPSHOT)
    bases = list(files_of(directory, FileKind.LOG))
    states = ProducerStates(directory, end_offset=bases[0])
    aborted: dict[int, list[AbortedTransaction]] = {base: [] for base in bases}
    compared = 0
    for stretch in stretches(directory):
        completed = replay_batches(states, stretch.data, stretch.columns)
        aborted[stretch.base_offset] += aborted_of(completed)
        assert stretch.end_offset == states.end_offset
        if stretch.end_offset not in expected:
            continue
        found = list(states.snapshot_entries())
        if directory.name == WITH_EXPIRED:
            known = {entry.producer_id for entry in expected[stretch.end_offset]}
            assert {each.producer_id for each in found} - known <= {1}
            found = [each for each in found if each.producer_id in known]
        assert files[stretch.end_offset].read_bytes() == encode_snapshot(found)
        compared += 1
    assert compared
    for base in bases:
        assert broker_index(directory, base) == aborted[base]


@pytest.mark.parametrize(
    "directory", [path for path in PLAIN if path.name != WITH_EXPIRED], ids=identify
)
def test_replay_from_each_snapshot_ends_as_that_from_the_start(directory: Path) -> None:
    """So a start may begin at any of them; the window alone is shorter by what a snapshot lacks."""
    parts = list(stretches(directory))
    for offset, entries in snapshots(directory).items():
        states = ProducerStates(directory)
        states.load(entries, offset)
        whole = ProducerStates(directory)
        for stretch in parts:
            replay_batches(whole, stretch.data, stretch.columns)
            if stretch.end_offset > offset:
                replay_batches(states, stretch.data, stretch.columns)
        assert sorted(whole.snapshot_entries()) == sorted(states.snapshot_entries())
        assert whole.open_transactions() == states.open_transactions()
        for producer_id, entry in states.entries.items():
            # Of the batch in a snapshot the time is not known, only that of a marker behind it.
            window = [batch[:3] for batch in whole.entries[producer_id].batches]
            known = [batch[:3] for batch in entry.batches]
            assert window[len(window) - len(known) :] == known


@pytest.mark.parametrize("directory", COMPACTED, ids=identify)
def test_replay_of_a_compacted_log_knows_of_every_aborted_record_that_is_left(
    directory: Path,
) -> None:
    """The broker's index also tells of transactions whose records compaction has removed."""
    bases = list(files_of(directory, FileKind.LOG))
    states = ProducerStates(directory, end_offset=bases[0])
    aborted: dict[int, list[AbortedTransaction]] = {base: [] for base in bases}
    kept: list[tuple[int, int, int]] = []
    for stretch in stretches(directory):
        completed = replay_batches(states, stretch.data, stretch.columns)
        aborted[stretch.base_offset] += aborted_of(completed)
        columns = stretch.columns
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
