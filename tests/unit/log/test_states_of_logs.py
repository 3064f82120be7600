"""Producers, epochs, watermarks and sizes of one log, as in Kafka's tests (PAR-21)."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kafkalog import AppendOrigin, Log, Record
from kafkalog.errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from kafkalog.files.names import SegmentFiles
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.state.leader_epochs import LeaderEpochs
from tests.support.damage import forget_shutdown, log_file
from tests.support.encoded_batches import batch
from tests.support.logs import append_sized, manual_log, numbered
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.producer_batches import Produced, encoded
from tests.support.producing import Client

P = 7


def mark(log: Log, epoch: int, coordinator_epoch: int, how: str = "abort") -> None:
    """Append a marker of a coordinator."""
    marker = Produced(
        P, epoch, ends=how, coordinator_epoch=coordinator_epoch, timestamp_ms=START_MS
    )
    log.append_batches(encoded([marker]), origin=AppendOrigin.COORDINATOR)


def test_truncation_rebuilds_producers_without_snapshots(directory: Path) -> None:
    """PAR-21, 6: by a replay of the remaining batches."""
    with manual_log(directory) as log:
        client = Client(P)
        for _number in range(3):
            client.send(log)
            log.roll()
        for path in directory.glob("*.snapshot"):
            path.unlink()
        log.truncate_to(2)
        found = log.find_producer(P)
        assert found is not None
        assert 1 == found.last_sequence
        client.sequence = 2
        assert 2 == client.send(log).first_offset


@pytest.mark.parametrize("has_segment", [False, True], ids=["no file", "an empty first segment"])
def test_checkpointed_log_start_without_data_is_kept(directory: Path, has_segment: bool) -> None:
    """PAR-21, 8: after a loss of all files offsets continue at the old log start."""
    directory.mkdir()
    (directory / "log-start-offset-checkpoint").write_text("0\n1\norders 0 42\n")
    if has_segment:
        log_file(directory).write_bytes(b"")
    for _again in range(2):
        with manual_log(directory) as log:
            assert (42, 42) == (log.log_start_offset, log.log_end_offset)
    with manual_log(directory) as log:
        assert 42 == log.append(numbered(0, 1)).first_offset


def test_epochs_follow_the_log_start(directory: Path) -> None:
    """PAR-21, 10: the first epoch begins at the log start; those below it are removed."""
    with manual_log(directory) as log:
        for epoch in range(3):
            for _batch in range(2):
                first = log.log_end_offset
                data = bytearray(batch(base_offset=first))
                # The CRC does not cover the epoch.
                struct.pack_into(">i", data, 12, epoch)
                log.append_batches(data, assign_offsets=False)
            log.roll()
        assert [(0, 6), (1, 12), (2, 18)] == [log.end_offset_for_epoch(each) for each in range(3)]
        log.delete_records(8)
        assert (1, 12) == log.end_offset_for_epoch(1)
        assert 6 < 8 <= log.end_offset_for_epoch(0).end_offset or (
            log.end_offset_for_epoch(0).epoch <= 0
        )
        log.delete_records(12)
        assert (2, 18) == log.end_offset_for_epoch(2)
        later = log.end_offset_for_epoch(1)
        assert later.end_offset in (-1, 12)
    with manual_log(directory) as log:
        assert later == log.end_offset_for_epoch(1)


def test_old_coordinator_is_fenced_after_snapshot_and_reload(directory: Path) -> None:
    """PAR-21, 16: by the epoch of the last marker, also of a marker that fenced the producer."""
    for is_clean in (True, False):
        with manual_log(directory) as log:
            if is_clean:
                Client(P, epoch=2).send(log, transactional=True)
                mark(log, 3, 5)
        if not is_clean:
            forget_shutdown(directory)
        with manual_log(directory) as log:
            found = log.find_producer(P)
            assert found is not None
            assert (3, 5) == (found.producer_epoch, found.coordinator_epoch)
            with pytest.raises(TransactionCoordinatorFencedError):
                mark(log, 3, 4)
            with pytest.raises(InvalidProducerEpochError):
                Client(P, epoch=2, sequence=1).send(log)


def test_marker_of_unknown_producer_requires_sequence_0(directory: Path) -> None:
    """PAR-21, 17: and older epochs are refused, as after a bumped epoch of a known producer."""
    with manual_log(directory) as log:
        mark(log, 4, 0)
        with pytest.raises(InvalidProducerEpochError):
            Client(P, epoch=3).send(log)
        with pytest.raises(OutOfOrderSequenceError):
            Client(P, epoch=4, sequence=5).send(log)
        Client(P, epoch=4).send(log)
        mark(log, 5, 0)
        with pytest.raises(OutOfOrderSequenceError):
            Client(P, epoch=5, sequence=1).send(log)
        Client(P, epoch=5).send(log)


def test_high_watermark_is_clamped_to_the_log(directory: Path) -> None:
    """PAR-21: reads from it up to the log end are empty, without an error."""
    with manual_log(directory) as log:
        for number in range(6):
            log.append(numbered(number, 1))
        log.delete_records(2)
        assert (2, 6, 4) == tuple(log.set_high_watermark(each) for each in (0, 2**62, 4))
        for offset in (4, 5, 6):
            assert b"" == bytes(log.read(offset).data)
            assert [] == list(log.records(offset))
            assert log.get(offset) is None


def test_replicated_batch_above_max_message_bytes_is_appended(directory: Path) -> None:
    """PAR-21: a follower's own limit would make it differ from its leader."""
    with manual_log(directory, max_message_bytes=100) as log:
        data = batch(base_offset=0)
        assert 100 < len(data)
        assert 2 == log.append_batches(data, assign_offsets=False).last_offset


@pytest.mark.parametrize("kind", ["log", "index", "timeindex"])
def test_empty_segment_or_index_file_opens(directory: Path, kind: str) -> None:
    """PAR-21: an empty log takes appends, empty indexes are rebuilt."""
    with manual_log(directory, index_interval_bytes=1) as log:
        for number in range(5):
            log.append(numbered(number, 1))
    path = log_file(directory).with_suffix("." + kind)
    path.write_bytes(b"")
    forget_shutdown(directory)
    with manual_log(directory, index_interval_bytes=1) as log:
        if kind != "log":
            assert [0, 1, 2, 3, 4] == [each.offset for each in log.records()]
        first = log.log_end_offset
        assert first == log.append(numbered(9, 1)).first_offset
        assert first == next(log.records(first)).offset


@pytest.mark.parametrize("removed", [1, 2, 4, 7])
@pytest.mark.parametrize("index_bytes", [96, 120, 240])
def test_truncated_full_index_is_refilled_without_an_early_roll(
    directory: Path, index_bytes: int, removed: int
) -> None:
    """PAR-21: the slots that a truncation frees are used again, to the last entry."""
    with manual_log(directory, index_interval_bytes=1, segment_index_bytes=index_bytes) as log:
        while len(log.segments()) == 1:
            append_sized(log, 100)
        full = log.segments()[1].base_offset
        # Each batch but the first has an entry of eight bytes.
        assert index_bytes // 8 + 1 == full
        log.truncate_to(full - removed)
        assert 1 == len(log.segments())
        count = 0
        while len(log.segments()) == 1:
            append_sized(log, 100)
            count += 1
        # As in a broker the first batch after a truncation has no entry, so that one more fits;
        # the last one begins a segment.
        assert removed + 1 + 1 == count
        assert [0, full + 1] == [each.base_offset for each in log.segments()]
        for _batch in range(full):
            append_sized(log, 100)
        assert [0, full + 1, 2 * full + 1] == [each.base_offset for each in log.segments()]


def test_last_producer_batches_survive_deletion_and_retention(directory: Path) -> None:
    """PAR-21: the state of producers does not depend on the remaining segments."""
    with manual_log(directory, segment_bytes=200, retention_bytes=100) as log:
        client = Client(P)
        for _number in range(6):
            client.send(log)
        before = cleaner_access(log).last_batches()
        assert log.apply_retention()
        log.delete_records(log.log_end_offset)
        assert before == cleaner_access(log).last_batches()


def test_closed_log_has_no_task_to_expire_producers(directory: Path) -> None:
    """PAR-21: the shared scheduler has no task of it."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    with manual_log(directory, clock=clock, scheduler=scheduler) as log:
        Client(P).send(log)
        assert "expire-producers" in [name for name, _delay in scheduler.pending]
    assert "expire-producers" not in [name for name, _delay in scheduler.pending]


@pytest.mark.parametrize("size", [2**31, 2**63 - 1, 2**63, 2**70])
def test_read_with_huge_max_bytes_returns_all(directory: Path, size: int) -> None:
    """PAR-21: no size of a caller overflows."""
    with manual_log(directory) as log:
        log.append(numbered(0, 3))
        whole = log_file(directory).read_bytes()
        assert whole == bytes(log.read(0, size).data)


def test_truncation_of_empty_epochs_does_nothing() -> None:
    """PAR-21: from either end."""
    epochs = LeaderEpochs()
    epochs.truncate_from_end(5)
    epochs.truncate_from_start(5)
    assert () == tuple(epochs.entries)


def test_deletion_of_all_records_keeps_producers_of_an_open_log(directory: Path) -> None:
    """PAR-21: the state stays although its segment was deleted."""
    with manual_log(directory) as log:
        client = Client(P)
        client.send(log)
        log.roll()
        log.delete_records(1)
        found = log.find_producer(P)
        assert found is not None
        assert 0 == found.last_sequence
        assert not SegmentFiles(directory, 0).log.exists()
        log.append([Record(value=b"x")])
