"""Durability of a log: flushes, failed syncs, the flush interval and the recovery point."""

from __future__ import annotations

import errno

import pytest

from kafkalog import LogConfig, LogOfflineError, LogStorageError, ReadOnlyLogError
from tests.support.log_parts import LogParts
from tests.support.producer_batches import Produced
from tests.support.simulated_disk import CrashChoice

P = 7


def test_flush_makes_the_log_end_durable() -> None:
    """Without the flush a power cut removes the batches."""
    parts = LogParts()
    flusher = parts.flusher()
    parts.append()
    parts.append()
    assert 0 == flusher.durable_offset
    assert (2, 2) == (flusher.flush(), flusher.durable_offset)
    parts.append()
    again = LogParts(parts.disk.crash(CrashChoice("nothing")))
    assert 2 == again.local.snapshot.end_offset


def test_wait_until_durable_below_the_durable_offset_does_not_sync() -> None:
    """The wait for a later offset syncs once."""
    parts = LogParts()
    parts.append()
    flusher = parts.flusher(durable_offset=1)
    parts.disk.calls.clear()
    assert 1 == flusher.wait_until_durable(1)
    assert 0 == parts.disk.call_count
    parts.append()
    assert (2, 1) == (flusher.wait_until_durable(2), parts.disk.calls["sync"])


@pytest.mark.parametrize("call", ["sync", "sync_directory"])
def test_flush_failed_sync_marks_the_log_offline(call: str) -> None:
    """The durable offset stays, and no later flush syncs the files again."""
    parts = LogParts()
    flusher = parts.flusher()
    parts.append()
    flusher.flush()
    parts.append()
    parts.roll()
    parts.disk.fail_at(1, only=frozenset({call}))
    with pytest.raises(LogStorageError) as caught:
        flusher.flush()
    assert errno.EIO == caught.value.errno
    assert 1 == len(parts.offline)
    assert not parts.gate.can_write()
    parts.disk.calls.clear()
    with pytest.raises(LogOfflineError, match="reopen it to recover"):
        flusher.flush()
    with pytest.raises(LogOfflineError, match="an earlier sync failed"):
        flusher.wait_until_durable(2)
    assert (1, 1, 0) == (flusher.durable_offset, len(parts.offline), parts.disk.call_count)


def test_flush_of_an_idle_log_does_not_sync() -> None:
    """All files of an idle log were synced when they were closed."""
    parts = LogParts()
    flusher = parts.flusher()
    parts.append()
    parts.gate.state.set_idle(True)
    parts.disk.calls.clear()
    assert (0, 0) == (flusher.flush(), parts.disk.call_count)
    assert 1 == flusher.sync_all()


def test_flush_of_a_read_only_log_raises() -> None:
    """It has no flush interval either."""
    writer = LogParts()
    writer.append()
    parts = LogParts(writer.disk, read_only=True, config=LogConfig(flush_ms=1_000))
    with pytest.raises(ReadOnlyLogError):
        parts.flusher().flush()
    assert [] == parts.scheduler.pending


def test_interval_flushes_until_it_is_cancelled() -> None:
    """Another interval counts after `reschedule` only."""
    config = LogConfig(flush_ms=1_000, segment_index_bytes=4096)
    parts = LogParts(config=config)
    flusher, scheduler = parts.flusher(), parts.scheduler
    parts.append()
    scheduler.advance(999)
    assert 0 == flusher.durable_offset
    scheduler.advance(1)
    assert 1 == flusher.durable_offset
    parts.local.context.apply_config(config.replace(flush_ms=50))
    flusher.reschedule()
    assert [("flush-interval", 50)] == scheduler.pending
    parts.append()
    scheduler.advance(50)
    assert 2 == flusher.durable_offset
    flusher.cancel()
    parts.append()
    scheduler.advance(10_000)
    assert (2, []) == (flusher.durable_offset, scheduler.errors)


def test_interval_failed_sync_marks_offline_and_later_intervals_do_nothing() -> None:
    """The scheduler gets the error once."""
    parts = LogParts(config=LogConfig(flush_ms=1_000, segment_index_bytes=4096))
    flusher = parts.flusher()
    parts.append()
    parts.disk.fail_at(1, only=frozenset({"sync"}))
    parts.scheduler.advance(1_000)
    assert ["flush-interval"] == [name for name, _error in parts.scheduler.errors]
    assert 1 == len(parts.offline)
    parts.disk.calls.clear()
    parts.scheduler.advance(5_000)
    assert (0, 0) == (parts.disk.call_count, flusher.durable_offset)
    assert 1 == len(parts.scheduler.errors)


def test_flush_soon_after_a_roll_checkpoints_the_recovery_point() -> None:
    """Without a roll the batches are synced, and the checkpoint is not written."""
    parts = LogParts()
    flusher = parts.flusher()
    parts.append()
    flusher.flush_soon()
    parts.scheduler.run_due()
    assert (1, 0) == (flusher.durable_offset, parts.store.read_recovery_point())
    parts.append()
    parts.roll()
    flusher.flush_soon()
    parts.scheduler.run_due()
    assert (2, 2) == (flusher.durable_offset, parts.store.read_recovery_point())


def test_checkpoint_of_a_closed_or_offline_log_writes_nothing() -> None:
    """The close has written the last recovery point, and an offline log knows none."""
    for end in ("close", "mark_offline"):
        parts = LogParts()
        flusher = parts.flusher(durable_offset=5)
        if end == "close":
            parts.gate.state.close()
        else:
            parts.gate.mark_offline(OSError())
        assert not flusher.checkpoint_recovery_point()
        assert 0 == parts.store.read_recovery_point()


@pytest.mark.parametrize(("call", "is_offline"), [("pwrite", False), ("sync_directory", True)])
def test_checkpoint_failure_marks_offline_only_if_the_disk_state_is_unknown(
    call: str, is_offline: bool
) -> None:
    """A checkpoint that could not be written is tried again; a failed directory sync is not."""
    parts = LogParts()
    flusher = parts.flusher()
    parts.append()
    flusher.flush()
    # A lower recovery point is synced, a higher one need not be.
    parts.store.write_recovery_point(9)
    parts.disk.fail_at(1, only=frozenset({call}))
    with pytest.raises(LogStorageError):
        flusher.checkpoint_recovery_point()
    assert is_offline == (len(parts.offline) == 1)
    assert is_offline != flusher.checkpoint_recovery_point()


def test_checkpoint_waits_for_a_missing_producer_snapshot() -> None:
    """Below the recovery point no batch is replayed, so the producer would be forgotten."""
    parts = LogParts()
    flusher = parts.flusher()
    parts.append(Produced(P))
    flusher.flush()
    assert not flusher.checkpoint_recovery_point()
    parts.roll()
    assert flusher.checkpoint_recovery_point()
    assert 1 == parts.store.read_recovery_point()


def test_lower_makes_removed_offsets_not_durable() -> None:
    """Later appends in the removed range become durable with the next flush."""
    parts = LogParts()
    flusher = parts.flusher()
    for _ in range(3):
        parts.append()
    flusher.flush()
    with parts.state.truncating():
        flusher.lower(1)
        parts.cut(1)
    assert 1 == flusher.durable_offset
    flusher.lower(2)
    assert 1 == flusher.durable_offset
    parts.append()
    assert 2 == flusher.flush()


@pytest.mark.parametrize(("producer_id", "offset", "expected"), [(-1, 1, 1), (P, 2, 2), (P, 1, 0)])
def test_lower_recovery_point_is_zero_if_no_producer_snapshot_remains(
    producer_id: int, offset: int, expected: int
) -> None:
    """A log without any snapshot is replayed from the recovery point on."""
    parts = LogParts()
    flusher = parts.flusher()
    parts.append(Produced(producer_id))
    parts.append(Produced(producer_id, sequence=1))
    parts.roll()
    parts.append(Produced(producer_id, sequence=2))
    flusher.flush()
    assert flusher.checkpoint_recovery_point()
    assert 3 == parts.store.read_recovery_point()
    flusher.lower(offset)
    flusher.lower_recovery_point(offset)
    assert expected == parts.store.read_recovery_point()


def test_lower_recovery_point_stays_where_a_producer_snapshot_is_missing() -> None:
    """The disk refused the newest snapshot, so the recovery point was not raised to the end."""
    parts = LogParts()
    flusher = parts.flusher()
    parts.append(Produced(P))
    parts.roll()
    flusher.flush()
    assert flusher.checkpoint_recovery_point()
    parts.append(Produced(P, sequence=1))
    parts.disk.fail_at(1, only=frozenset({"create"}), suffix=".snapshot.tmp")
    parts.roll()
    assert 0 == parts.disk.faults_waiting
    assert (2, False) == (flusher.flush(), flusher.checkpoint_recovery_point())
    flusher.lower_recovery_point(2)
    assert 1 == parts.store.read_recovery_point()
