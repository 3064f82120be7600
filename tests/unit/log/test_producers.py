"""Idempotent producers of an open log: checks, duplicates, and state after every change."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from kafkalog import (
    AppendOrigin,
    DiskFullError,
    InvalidProducerEpochError,
    Log,
    OutOfOrderSequenceError,
    ProducerStateError,
    TransactionCoordinatorFencedError,
)
from kafkalog.files.names import SYNC_JOURNAL, FileKind
from kafkalog.log.log import partition_of
from kafkalog.log.producer_replay import add_batch
from kafkalog.state.producers import ProducerChecks, ProducerStates
from tests.golden_directories.producer_files import files_of, snapshots
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.producer_batches import Produced, encoded
from tests.support.producing import Client
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

DIRECTORY = Path("/data-of-one/orders-0")
SMALL: dict[str, Any] = {"segment_bytes": 400, "index_interval_bytes": 100}


def disk_with_room() -> SimulatedDisk:
    """Return a disk on which the log's directory may be created."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    return disk


def test_duplicate_batch_returns_its_first_offsets(tmp_path: Path) -> None:
    """Nothing is written, also after other batches, and also for a durable append."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 3))
        data = client.batch(2)
        first = log.append_batches(data, origin=AppendOrigin.CLIENT)
        client.send(log)
        again = log.append_batches(data, origin=AppendOrigin.CLIENT, wait="durable")
        assert (3, 4, 2, False) == (
            first.first_offset,
            first.last_offset,
            first.record_count,
            first.is_duplicate,
        )
        assert (3, 4, 2, True, 0) == (
            again.first_offset,
            again.last_offset,
            again.record_count,
            again.is_duplicate,
            again.size_bytes,
        )
        assert 6 == log.log_end_offset
        assert log.durable_offset > again.last_offset


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.EMBEDDED])
def test_sequence_gap_is_refused_and_changes_nothing(tmp_path: Path, origin: AppendOrigin) -> None:
    """The batch that is next in order is appended."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0") as log:
        client.send(log)
        lost = client.batch()
        late = client.batch()
        with pytest.raises(OutOfOrderSequenceError) as caught:
            log.append_batches(late, origin=origin)
        assert 7 == caught.value.producer_id
        assert 1 == log.log_end_offset
        log.append_batches(lost, origin=origin)
        log.append_batches(late, origin=origin)
        assert 3 == log.log_end_offset


def test_old_producer_epoch_is_fenced_except_in_replication(
    tmp_path: Path,
) -> None:
    """A copy takes the batches that its leader has accepted."""
    with manual_log(tmp_path / "orders-0") as log:
        Client(7, epoch=3).send(log)
        with pytest.raises(InvalidProducerEpochError):
            Client(7, epoch=2).send(log)
        with pytest.raises(InvalidProducerEpochError):
            Client(7, epoch=2).end(log, "commit")
        log.append_batches(encoded([Produced(7, epoch=2)], base_offset=1), assign_offsets=False)
        assert 2 == log.log_end_offset


def test_marker_of_an_older_coordinator_is_refused(tmp_path: Path) -> None:
    """A newer coordinator may have decided otherwise."""
    with manual_log(tmp_path / "orders-0") as log:
        newer = encoded([Produced(7, ends="commit", coordinator_epoch=5)])
        older = encoded([Produced(7, ends="abort", coordinator_epoch=4)])
        log.append_batches(newer, origin=AppendOrigin.COORDINATOR)
        with pytest.raises(TransactionCoordinatorFencedError):
            log.append_batches(older, origin=AppendOrigin.COORDINATOR)
        assert 1 == log.log_end_offset


def states_of_batches(log: Log) -> ProducerStates:
    """Return the producers that the batches of a log name, added one by one."""
    states = ProducerStates()
    for batch in log.batches():
        append = states.begin_append(ProducerChecks.NONE)
        add_batch(append, batch)
        append.commit()
        states.advance_to(batch.header.last_offset + 1)
    return states


def random_batch(choice: random.Random, client: Client) -> bytes:
    """Return a batch of a producer: usually the next one, else one with a gap or another epoch."""
    kind = choice.random()
    if kind < 0.05:
        client.epoch, client.sequence = client.epoch + 1, 0
    elif kind < 0.1:
        client.sequence = (client.sequence + choice.randint(-3, 3)) % 2**31
    elif kind < 0.12:
        client.sequence = 2**31 - choice.randint(1, 3)
    client.timestamp_ms += choice.randint(-5, 50)
    before = client.sequence
    batch = client.batch(choice.randint(1, 4), transactional=choice.random() < 0.1)
    client.sequence %= 2**31
    return b"" if before >= 2**31 else batch


@pytest.mark.parametrize("seed", range(8))
def test_fast_path_and_slow_path_leave_the_same_state(tmp_path: Path, seed: int) -> None:
    """After each append, refused ones too; with rolls, duplicates, transactions, other appends."""
    choice = random.Random(seed)
    clients = [Client(number, timestamp_ms=1000) for number in (7, 8, 2**40)]
    accepted = 0
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        for _ in range(120):
            client = choice.choice(clients)
            kind = choice.random()
            before = client.epoch, client.sequence
            try:
                if kind < 0.1:
                    log.append(numbered(0, 1))
                elif kind < 0.2:
                    client.end(log, choice.choice(["commit", "abort"]))
                else:
                    data = random_batch(choice, client)
                    accepted += not log.append_batches(data).is_duplicate
                    if choice.random() < 0.1:
                        assert log.append_batches(data).is_duplicate
            except ProducerStateError:
                client.epoch, client.sequence = before
            producers = partition_of(log).producers
            expected = states_of_batches(log)
            assert expected.entries == producers.states.entries
            assert expected.end_offset == log.log_end_offset
            # Every marker is replicated: only open transactions limit readers.
            opened = [each.first_offset for each in expected.open_transactions()]
            assert min(opened, default=log.log_end_offset) == log.last_stable_offset
        assert accepted > 40


def test_failed_write_keeps_the_producer_state() -> None:
    """The batch may be sent again, and is not a duplicate of unwritten bytes."""
    disk, client = disk_with_room(), Client(7)
    with manual_log(DIRECTORY, filesystem=disk) as log:
        client.send(log)
        data = client.batch(transactional=True)
        disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix=".log")
        with pytest.raises(DiskFullError):
            log.append_batches(data, origin=AppendOrigin.CLIENT)
        assert partition_of(log).view.first_unstable_offset is None
        info = log.append_batches(data, origin=AppendOrigin.CLIENT)
        assert (1, False) == (info.first_offset, info.is_duplicate)


def test_log_without_producers_writes_no_snapshots(tmp_path: Path) -> None:
    """Neither at rolls nor at the close, so that they cost nothing."""
    directory = tmp_path / "orders-0"
    with manual_log(directory, **SMALL) as log:
        for number in range(20):
            log.append(numbered(number, 1))
        log.roll()
    assert {} == files_of(directory, FileKind.SNAPSHOT)


def test_snapshots_are_written_at_each_roll_and_at_the_close(tmp_path: Path) -> None:
    """Each has the state below its offset; the one of the close is the last."""
    directory = tmp_path / "orders-0"
    client = Client(7)
    with manual_log(directory, **SMALL) as log:
        for _ in range(12):
            client.send(log)
        bases = [segment.base_offset for segment in log.segments()]
    assert len(bases) > 2
    taken = snapshots(directory)
    assert [*bases[1:], 12] == list(taken)
    for offset, entries in taken.items():
        assert [(7, offset - 1, offset - 1)] == [
            (each.producer_id, each.last_sequence, each.last_offset) for each in entries
        ]


def test_append_over_several_segments_writes_a_snapshot_for_each(tmp_path: Path) -> None:
    """The snapshots are those of many appends of one batch."""
    directory = tmp_path / "orders-0"
    with manual_log(directory, **SMALL) as log:
        run = encoded([Produced(7, sequence=number) for number in range(12)])
        log.append_batches(run)
        bases = [segment.base_offset for segment in log.segments()]
    assert len(bases) > 2
    taken = snapshots(directory)
    assert [*bases[1:], 12] == list(taken)
    assert [each - 1 for each in taken] == [each[0].last_sequence for each in taken.values()]


def test_duplicates_are_detected_after_a_clean_close(tmp_path: Path) -> None:
    """A snapshot keeps the last one of a producer's five batches, as a broker's does."""
    directory, client = tmp_path / "orders-0", Client(7)
    with manual_log(directory) as log:
        client.send(log)
        data = client.batch(3)
        log.append_batches(data, origin=AppendOrigin.CLIENT)
    with manual_log(directory) as log:
        info = log.append_batches(data, origin=AppendOrigin.CLIENT)
        assert (1, 3, True) == (info.first_offset, info.last_offset, info.is_duplicate)
        client.send(log)


@pytest.mark.parametrize("with_rolls", [False, True])
def test_duplicates_are_detected_after_a_crash(with_rolls: bool) -> None:
    """From a snapshot and a replay, or from the batches alone."""
    disk, client = disk_with_room(), Client(7)
    settings = SMALL if with_rolls else {}
    log = manual_log(DIRECTORY, filesystem=disk, **settings)
    for _ in range(9):
        client.send(log)
    data = client.batch()
    log.append_batches(data, origin=AppendOrigin.CLIENT, wait="durable")
    left = disk.crash(CrashChoice("nothing"))
    with manual_log(DIRECTORY, filesystem=left, **settings) as again:
        assert not again.recovery_report.clean
        assert 10 == again.log_end_offset
        info = again.append_batches(data, origin=AppendOrigin.CLIENT)
        assert (9, True) == (info.first_offset, info.is_duplicate)
        client.send(again)


def test_recovery_point_rises_only_over_synced_snapshots() -> None:
    """After a power cut no batch below it is replayed; the state must be in a file."""
    disk, client = disk_with_room(), Client(7)
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    log = manual_log(DIRECTORY, filesystem=disk, clock=clock, scheduler=scheduler)
    client.send(log)
    log.roll()
    log.append(numbered(0, 1))
    scheduler.advance(0)
    left = disk.crash(CrashChoice("nothing"))
    with manual_log(DIRECTORY, filesystem=left) as again:
        with pytest.raises(OutOfOrderSequenceError):
            Client(7, sequence=5).send(again)
        client.send(again)


def test_truncation_reverts_the_producer_state(tmp_path: Path) -> None:
    """Cut batches may be sent again, and are written."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        batches = [client.batch() for _ in range(12)]
        for data in batches:
            log.append_batches(data, origin=AppendOrigin.CLIENT)
        log.truncate_to(5)
        assert all(offset <= 5 for offset in snapshots(log.directory))
        info = log.append_batches(batches[5], origin=AppendOrigin.CLIENT)
        assert (5, False) == (info.first_offset, info.is_duplicate)
        log.truncate_to(5)
        with pytest.raises(OutOfOrderSequenceError):
            log.append_batches(batches[6], origin=AppendOrigin.CLIENT)


def test_full_truncation_removes_all_producers(tmp_path: Path) -> None:
    """Also their snapshots on the disk."""
    directory, client = tmp_path / "orders-0", Client(7)
    with manual_log(directory, **SMALL) as log:
        for _ in range(12):
            client.send(log)
        log.truncate_fully_and_start_at(100)
        assert {} == snapshots(directory)
        Client(7, sequence=50).send(log)
    assert [101] == list(snapshots(directory))


def test_retention_removes_snapshots_of_deleted_segments(tmp_path: Path) -> None:
    """The state stays: it belongs to the producer, not to its old records."""
    client = Client(7)
    with manual_log(tmp_path / "orders-0", **SMALL) as log:
        for _ in range(12):
            client.send(log)
        bases = [segment.base_offset for segment in log.segments()]
        log.delete_records(bases[-1])
        assert [bases[-1]] == list(snapshots(log.directory))
        with pytest.raises(OutOfOrderSequenceError):
            Client(7, sequence=3).send(log)
        client.send(log)


def test_silent_producer_expires_without_an_open_transaction(tmp_path: Path) -> None:
    """A background task checks it, once the log has a producer."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    with manual_log(tmp_path / "orders-0", clock=clock, scheduler=scheduler) as log:
        Client(7).send(log)
        Client(8).send(log, transactional=True)
        scheduler.advance(86_400_000 - 600_000)
        with pytest.raises(OutOfOrderSequenceError):
            Client(7, sequence=5).send(log)
        scheduler.advance(1_200_000)
        Client(7, sequence=5).send(log)
        with pytest.raises(OutOfOrderSequenceError):
            Client(8, sequence=5).send(log, transactional=True)


@pytest.mark.parametrize("has_journal", [True, False])
def test_log_without_snapshots_is_replayed_from_its_start(has_journal: bool) -> None:
    """Only without a sync journal: another program may have written below the recovery point."""
    disk, client, scheduler = disk_with_room(), Client(7), ManualScheduler(ManualClock())
    log = manual_log(DIRECTORY, filesystem=disk, scheduler=scheduler, **SMALL)
    data = client.batch(2)
    log.append_batches(data, origin=AppendOrigin.CLIENT)
    for number in range(20):
        log.append(numbered(number, 1))
    log.flush()
    scheduler.advance(0)
    left = disk.crash(CrashChoice("all"))
    for name in left.list(DIRECTORY):
        if name.endswith(".snapshot") or (name == SYNC_JOURNAL and not has_journal):
            left.unlink(DIRECTORY / name)
    with manual_log(DIRECTORY, filesystem=left, **SMALL) as again:
        assert again.recovery_report.scanned_segments < len(again.segments())
        info = again.append_batches(data, origin=AppendOrigin.CLIENT)
        assert has_journal is not info.is_duplicate


def test_snapshot_of_lost_batches_is_ignored() -> None:
    """The snapshot was synced, the segment below it was not: lost batches are not duplicates."""
    disk, client = disk_with_room(), Client(7)
    log = manual_log(DIRECTORY, filesystem=disk, **SMALL)
    log.append(numbered(0, 1), wait="durable")
    data = client.batch(2)
    log.append_batches(data, origin=AppendOrigin.CLIENT)
    log.roll()
    (name,) = (name for name in disk.list(DIRECTORY) if name.endswith(".snapshot"))
    handle = disk.open(DIRECTORY / name, write=True)
    handle.sync()
    handle.close()
    disk.sync_directory(DIRECTORY)
    left = disk.crash(CrashChoice("nothing"))
    assert name in left.list(DIRECTORY)
    with manual_log(DIRECTORY, filesystem=left, **SMALL) as again:
        assert [0] == [record.offset for record in again.records()]
        info = again.append_batches(data, origin=AppendOrigin.CLIENT)
        assert not info.is_duplicate


def test_truncation_writes_a_snapshot_at_the_new_end(tmp_path: Path) -> None:
    """Without any snapshot a recovery assumes that no producer wrote below its start."""
    directory, client = tmp_path / "orders-0", Client(7)
    with manual_log(directory) as log:
        for _ in range(3):
            client.send(log)
    assert {3} == set(snapshots(directory))
    with manual_log(directory) as log:
        log.truncate_to(2)
        assert {2} == set(snapshots(directory))
