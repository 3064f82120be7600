"""The fast path of an append: what it appends, and what it leaves to the slow path."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog._core.append_limits import AppendLimits
from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.record import Record
from kafkalog._core.run_builder import SpareBuilder, pack_uncompressed
from kafkalog._engine.append_file import AppendFile
from kafkalog._engine.append_lane import AppendLane
from kafkalog._engine.epoch_state import EpochState
from kafkalog._engine.gate_state import GateState
from kafkalog._engine.index_buffer import IndexBuffer
from kafkalog._engine.roll_planner import RollPlanner
from kafkalog._engine.segment_appender import SegmentAppender
from kafkalog._engine.snapshot import LogSnapshot, PublishedSnapshot
from kafkalog.config import LogConfig
from kafkalog.model import AppendInfo, AppendOrigin
from kafkalog.records.append_rules import AppendRules
from kafkalog.records.validation.leader import validate_as_leader


class Handle:
    """Takes writes, unless it is to fail."""

    def __init__(self) -> None:
        self.data = b""
        self.error: OSError | None = None

    def pwrite(self, data: Any, position: int) -> None:
        """Write at the end, or fail."""
        if self.error is not None:
            raise self.error
        assert len(self.data) == position
        self.data += bytes(data)


class Lane:
    """An append lane over one segment of 1000 bytes at most, and what it called."""

    def __init__(self, current: int = 0, written: int | None = 0, producers: Any = None) -> None:
        self.handle = Handle()
        self.lock = threading.RLock()
        self.gate = GateState()
        self.epochs = EpochState(current, written, written is None)
        self.calls: list[Any] = []
        self.refused: list[bool] = []
        self.undo_error: BaseException | None = None
        stage = RollPlanner(0, offset_entries_max=100, time_entries_max=100)
        stage.set_limits(segment_bytes=1000, interval_bytes=0, roll_after_ms=500)
        self.offsets = IndexBuffer(8)
        file = AppendFile(0)
        file.attach(self.handle.pwrite)
        self.end = SegmentAppender(stage, file, self.offsets, IndexBuffer(12))
        segment = SimpleNamespace(end=self.end, age_ms=self.age_ms)
        segments: Any = SimpleNamespace(segments=(None, segment))
        self.published = PublishedSnapshot(LogSnapshot(segments, 0, 0, 0))
        clock: Any = SimpleNamespace(now_ms=lambda: 7)
        self.lane = AppendLane(
            self.gate,
            self.lock,
            self.published,
            self.epochs,
            clock,
            self.undo,
            self.ensure_writable,
            producers,
        )

    @property
    def is_locked(self) -> bool:
        """True if this thread holds the lock."""
        return self.lock._is_owned()  # type: ignore[attr-defined, no-any-return]

    def age_ms(self) -> int:
        """Return the age of an old segment."""
        self.calls.append("age")
        return 501

    def undo(self, error: BaseException) -> None:
        """Record the error, and raise another one if that is wanted."""
        self.calls.append((self.is_locked, error))
        if self.undo_error is not None:
            raise self.undo_error from error

    def ensure_writable(self) -> None:
        """Refuse."""
        self.refused.append(self.is_locked)
        raise KeyError("refused")


def run_of(count: int = 1, size: int = 20, time: int = 100) -> MemoryRecords:
    """Return a batch of so many records."""
    limits = AppendLimits(
        batch_bytes=10**6,
        max_message_bytes=10**6,
        before_ms=2**62,
        after_ms=2**62,
        is_key_required=False,
        is_log_append_time=False,
    )
    run = pack_uncompressed(
        SpareBuilder(), [Record(value=bytes(size), timestamp_ms=time)] * count, limits, 100, -1
    )
    assert run is not None
    return run


def test_append_lane_run_that_fits_is_written_and_published() -> None:
    """Bytes, entries, offset and position move on together; the age counts without a timestamp."""
    rig = Lane()
    run = run_of(3)
    info = rig.lane.append(run)
    assert AppendInfo(0, 2, 3, 1, len(run.data), None, 100, 2) == info
    before = rig.published.snapshot
    assert LogSnapshot(before.segments, 3, len(run.data), 0) == before
    assert ["age"] == rig.calls
    assert run.data == rig.handle.data
    rig.lane.append(run_of(3))
    after = rig.published.snapshot
    assert LogSnapshot(before.segments, 6, 2 * len(run.data), 0) == after
    assert 3 == before.end_offset
    assert ["age"] == rig.calls
    assert not rig.is_locked


def test_append_lane_run_that_must_roll_changes_nothing() -> None:
    """The roll planner is as it was, so that the slow path can plan the same run."""
    rig = Lane()
    rig.lane.append(run_of(1, 900))
    before, entries = rig.published.snapshot, rig.offsets.entries()
    data, largest = rig.handle.data, rig.end.stage.max_timestamp
    assert rig.lane.append(run_of(1, 50, time=900)) is None
    assert before is rig.published.snapshot
    assert (data, entries) == (rig.handle.data, rig.offsets.entries())
    assert largest == rig.end.stage.max_timestamp
    assert not rig.end.stage.has_entries


@pytest.mark.parametrize("translates", [False, True])
def test_append_lane_failed_write_is_undone_under_the_lock(translates: bool) -> None:
    """The published snapshot stays; an error of the undo replaces the error of the write."""
    rig = Lane()
    rig.lane.append(run_of())
    before, rig.calls[:] = rig.published.snapshot, []
    rig.handle.error = OSError("no space")
    if translates:
        rig.undo_error = RuntimeError("translated")
    with pytest.raises(RuntimeError if translates else OSError):
        rig.lane.append(run_of())
    assert [(True, rig.handle.error)] == rig.calls
    assert before is rig.published.snapshot
    assert not rig.is_locked


def without_new_offsets(epoch: int) -> MemoryRecords:
    """Return a batch that keeps its offset."""
    run = run_of()
    return MemoryRecords(bytes(run.data), run.batches, 1, needs_offsets=False, leader_epoch=epoch)


def of_an_old_format() -> MemoryRecords:
    """Return bytes like those of a message."""
    return MemoryRecords(bytearray(16) + b"\x01" + bytes(50), BatchMetadata([(67, 0, 0, 5, 0)]), 1)


@pytest.mark.parametrize(
    ("expected", "make", "current", "written"),
    [
        (True, run_of, 3, 3),
        (False, run_of, 3, 2),
        (False, run_of, 3, None),
        (False, of_an_old_format, 3, 3),
        (True, lambda: without_new_offsets(3), 3, 3),
        (False, lambda: without_new_offsets(4), 3, 3),
        (False, lambda: without_new_offsets(4), 4, 3),
        (False, lambda: without_new_offsets(-2), 3, 3),
        (True, lambda: without_new_offsets(-1), 3, 3),
        (True, lambda: without_new_offsets(-1), 3, 2),
        (False, lambda: without_new_offsets(-1), 3, None),
    ],
)
def test_append_lane_unwritten_epoch_takes_the_slow_path(
    expected: bool, make: Callable[[], MemoryRecords], current: int, written: int | None
) -> None:
    """Batches without an epoch change nothing, unless a write of the file is due."""
    rig = Lane(current, written)
    assert expected is rig.epochs.is_epoch_written(make())
    assert expected is (rig.lane.append(make()) is not None)


def test_append_lane_producer_or_empty_run_takes_the_slow_path() -> None:
    """Producer state must be checked; an empty append publishes nothing."""
    rig = Lane()
    run = run_of()
    assert rig.lane.append(MemoryRecords(run.data, run.batches, 1, has_producers=True)) is None
    assert rig.lane.append(MemoryRecords(bytearray(), BatchMetadata(), 0)) is None
    assert (b"", 0) == (rig.handle.data, rig.published.snapshot.end_offset)


def test_append_lane_admit_returns_time_and_checks_wait() -> None:
    """`admit` runs before the append is prepared."""
    rig = Lane()
    assert 7 == rig.lane.admit("written") == rig.lane.admit("durable")
    with pytest.raises(ValueError, match="got 'now'"):
        rig.lane.admit("now")


def test_append_lane_configure_sets_rules_and_followers() -> None:
    """`has_followers`: the caller has more to do after an append."""
    rig = Lane()
    rules: Any = "rules"
    assert not rig.lane.has_followers
    rig.lane.configure(rules, True)
    assert (rules, True) == (rig.lane.rules, rig.lane.has_followers)


@pytest.mark.parametrize(
    "close",
    [
        lambda gate: gate.close(),
        lambda gate: gate.set_idle(True),
        lambda gate: gate.mark_offline(OSError()),
    ],
)
def test_append_lane_closed_gate_raises_in_admit_and_appends_nothing(
    close: Callable[[GateState], object],
) -> None:
    """`admit` raises what the gate raises, without the lock; `append` changes nothing."""
    rig = Lane()
    close(rig.gate)
    with pytest.raises(KeyError):
        rig.lane.admit("written")
    assert rig.lane.append(run_of()) is None
    assert ([False], b"") == (rig.refused, rig.handle.data)
    assert not rig.is_locked


class Producers:
    """The producer with id 7, epoch 3, and the next sequence 40."""

    def __init__(self) -> None:
        self.recorded: list[Any] = []

    def find_next(self, producer_id: int, producer_epoch: int, base_sequence: int) -> str | None:
        """Return its entry."""
        is_next = (producer_id, producer_epoch, base_sequence) == (7, 3, 40)
        return "entry" if is_next else None

    def record_next(self, *arguments: Any) -> None:
        """Take note of a batch."""
        self.recorded.append(arguments)


def produced(sequence: int, *, transactional: bool = False, batch_count: int = 1) -> MemoryRecords:
    """Return batches of two records, of the producer."""
    builder = BatchBuilder()
    for time_ms in (100, 90):
        builder.append(None, bytes(20), time_ms)
    data = bytes(
        builder.finish(
            producer_id=7, producer_epoch=3, base_sequence=sequence, transactional=transactional
        )
    )
    return validate_as_leader(
        data * batch_count, AppendRules.of(LogConfig()), 100, AppendOrigin.EMBEDDED
    )


def test_append_lane_takes_the_next_batch_of_a_producer() -> None:
    """Its state gets the offsets of the log, when they are published."""
    producers = Producers()
    rig = Lane(producers=producers)
    rig.lane.append(run_of(3))
    info = rig.lane.append(produced(40))
    assert info is not None
    assert (3, 4) == (info.first_offset, info.last_offset)
    assert [("entry", 4, 1, 100)] == producers.recorded


@pytest.mark.parametrize(
    "run", [produced(41), produced(40, transactional=True), produced(40, batch_count=2)]
)
def test_append_lane_leaves_other_batches_of_producers(run: MemoryRecords) -> None:
    """The slow path checks them."""
    producers = Producers()
    for each in (producers, None):
        rig = Lane(producers=each)
        before = bytes(run.data)
        assert rig.lane.append(run) is None
        assert (0, b"") == (rig.published.snapshot.end_offset, rig.handle.data)
        assert before == run.data
    assert not producers.recorded


def test_append_lane_producer_of_a_failed_write_is_not_recorded() -> None:
    """The same if the segment must roll first."""
    producers = Producers()
    rig = Lane(producers=producers)
    rig.lane.append(run_of(1, 900))
    assert rig.lane.append(produced(40)) is None
    rig = Lane(producers=producers)
    rig.handle.error = OSError("full")
    with pytest.raises(OSError, match="full"):
        rig.lane.append(produced(40))
    assert not producers.recorded
