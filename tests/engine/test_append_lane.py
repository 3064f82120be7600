"""The short way of an append: what it does itself, and when it calls those who know more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from os import getpid
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kafkalog._core.append_limits import AppendLimits
from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.memory_records import MemoryRecords
from kafkalog._core.record import Record
from kafkalog._core.run_builder import pack_uncompressed
from kafkalog._engine.append_file import AppendFile
from kafkalog._engine.append_lane import AppendEntrance, EpochsAtHand, LogEnd, RunAppender
from kafkalog._engine.index_buffer import IndexBuffer
from kafkalog._engine.roll_planner import RollPlanner
from kafkalog._engine.segment_appender import SegmentAppender
from kafkalog.model import AppendInfo, AppendOrigin


class Seen(NamedTuple):
    """A snapshot as a log publishes it."""

    segments: Any
    end_offset: int
    end_position: int
    start_offset: int


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


class End(LogEnd):
    """The end of a log whose one segment has 1000 bytes at most."""

    def __init__(self) -> None:
        self.handle, self.calls = Handle(), []  # type: ignore[var-annotated]
        stage = RollPlanner(0, offset_entries_max=100, time_entries_max=100)
        stage.set_limits(segment_bytes=1000, interval_bytes=0, roll_after_ms=500)
        file = AppendFile()
        file._handle = self.handle
        end = SegmentAppender(stage, file, IndexBuffer(8), IndexBuffer(12))
        self.segment = SimpleNamespace(end=end, age_ms=self.age_ms)
        self.snapshot = Seen(SimpleNamespace(segments=(None, self.segment)), 0, 0, 0)

    def age_ms(self) -> int:
        """Say that the segment is old."""
        self.calls.append("age")
        return 501

    def append_rolling(self, data: Any, batches: BatchMetadata, row: int, size: int) -> None:
        self.calls.append((row, size))

    def _undo(self, active: Any, fresh: list[Any], error: BaseException) -> None:
        self.calls.append((active is self.segment, fresh, error))


class Appender(RunAppender):
    """Counts what it has to do itself."""

    def __init__(self, current: int = 0, written: int | None = 0) -> None:
        self.end, self.long = End(), 0
        self._local = self.end
        self._epochs = EpochsAtHand()
        self._epochs.current = current
        self._epochs._epochs = SimpleNamespace(written_epoch=written, is_unwritten=written is None)
        self.rolls: list[Any] = []

    def append(
        self, run: MemoryRecords, rules: Any, origin: AppendOrigin
    ) -> tuple[AppendInfo, bool]:
        """Append any run."""
        self.long += 1
        return run.assign_offsets(self.end.snapshot.end_offset, self._epochs.current), False

    def _rolled(self, before: Seen) -> None:
        self.rolls.append(before)

    def _not_written(self, error: BaseException, pending: None) -> None:
        raise RuntimeError("translated") from error


class Entrance(AppendEntrance):
    """An entrance that says what it was asked."""

    def __init__(self, appender: Appender) -> None:
        self._write_lock = threading.RLock()
        self._appender = appender
        self._rules = "rules"
        self._clock = SimpleNamespace(now_ms=lambda: 7)
        self._process = getpid()
        self.refused: list[bool] = []
        self.behind: list[tuple[int, bool, str]] = []

    def _ensure_writable(self) -> None:
        self.refused.append(self._write_lock._is_owned())  # type: ignore[attr-defined]
        raise KeyError("refused")

    def _after_append(self, info: AppendInfo, rolled: bool, wait: str) -> None:
        assert not self._write_lock._is_owned()  # type: ignore[attr-defined]
        self.behind.append((info.last_offset, rolled, wait))


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
    run = pack_uncompressed([Record(value=bytes(size), timestamp_ms=time)] * count, limits, 100, -1)
    assert run is not None
    return run


def test_end_writes_and_publishes_what_belongs_there() -> None:
    """Bytes, offset and position move on together; the age is asked while no time is known."""
    end = End()
    run = run_of(3)
    run.assign_offsets(0, 0)
    assert end.append(run.data, run.batches) is False
    segments = end.snapshot.segments
    assert Seen(segments, 3, len(run.data), 0) == end.snapshot
    assert isinstance(end.snapshot, Seen)
    assert ["age"] == end.calls
    run.assign_offsets(3, 0)
    end.append(run.data, run.batches)
    assert (6, 2 * len(run.data)) == end.snapshot[1:3]
    assert 2 * len(run.data) == len(end.handle.data)
    assert ["age"] == end.calls
    with pytest.raises(ValueError, match="no batch"):
        end.append(b"", BatchMetadata())


def test_end_leaves_to_others_what_belongs_behind_it() -> None:
    """Nothing is written or published by it then."""
    end = End()
    first, second = run_of(1, 900), run_of(1, 50)
    first.assign_offsets(0, 0)
    second.assign_offsets(1, 0)
    end.append(first.data, first.batches)
    before = end.snapshot
    assert end.append(second.data, second.batches) is True
    assert ["age", (0, 0)] == end.calls
    assert before is end.snapshot
    assert len(first.data) == len(end.handle.data)


@pytest.mark.parametrize("way", ["end", "appender"])
def test_failed_write_is_undone_and_told(way: str) -> None:
    """What was published before stays."""
    appender = Appender()
    end, entrance = appender.end, Entrance(appender)
    entrance._append(run_of(), "written")
    before, end.calls[:] = end.snapshot, []
    end.handle.error = OSError("no room")
    run = run_of()
    if way == "end":
        run.assign_offsets(1, 0)
        with pytest.raises(OSError, match="no room"):
            end.append(run.data, run.batches)
    else:
        with pytest.raises(RuntimeError, match="translated"):
            entrance._append(run, "written")
        assert not entrance._write_lock._is_owned()  # type: ignore[attr-defined]
    assert [(True, [], end.handle.error)] == end.calls
    assert before is end.snapshot


def without_new_offsets(epoch: int) -> MemoryRecords:
    """Return a batch that keeps its offset."""
    run = run_of()
    return MemoryRecords(bytes(run.data), run.batches, 1, needs_offsets=False, leader_epoch=epoch)


def of_an_old_format() -> MemoryRecords:
    """Return what looks like a message."""
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
def test_epochs_know_what_the_file_has(
    expected: bool, make: Callable[[], MemoryRecords], current: int, written: int | None
) -> None:
    """Batches without an epoch change nothing, unless something is owed to the file."""
    appender = Appender(current, written)
    assert expected is appender._epochs.is_epoch_written(make())
    Entrance(appender)._append(make(), "written")
    assert (not expected) == appender.long


def test_run_of_producers_or_of_nothing_goes_the_long_way() -> None:
    """Somebody has to ask their state; and an append of nothing publishes nothing."""
    appender = Appender()
    entrance = Entrance(appender)
    run = run_of()
    of_producer = MemoryRecords(run.data, run.batches, 1, has_producers=True)
    assert 0 == entrance._append(of_producer, "written").last_offset
    assert (
        -1
        == entrance._append(MemoryRecords(bytearray(), BatchMetadata(), 0), "written").last_offset
    )
    assert (2, b"") == (appender.long, appender.end.handle.data)


def test_entrance_calls_those_behind_it_only_where_there_is_reason() -> None:
    """Who waits, counts, watches, or hears of a new segment; never under the lock."""
    appender = Appender()
    entrance = Entrance(appender)
    assert 7 == entrance._admit("written") == entrance._admit("durable")
    with pytest.raises(ValueError, match="not 'now'"):
        entrance._admit("now")
    assert AppendInfo(0, 1, 2, 1, len(run_of(2).data), None, 100, 1) == entrance._append(
        run_of(2), "written"
    )
    assert [] == entrance.behind
    entrance._append(run_of(), "durable")
    entrance._flush_messages = 10
    entrance._append(run_of(), "written")
    entrance._flush_messages = 2**63 - 1
    entrance._watchers = ((print,),)
    entrance._append(run_of(), "written")
    entrance._watchers = ()
    entrance._append(run_of(), "written")
    before = appender.end.snapshot
    entrance._append(run_of(size=900), "written")
    assert [(2, False, "durable"), (3, False, "written"), (4, False, "written")] == (
        entrance.behind[:3]
    )
    assert [(6, True, "written")] == entrance.behind[3:]
    assert [before] == appender.rolls


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_closed", True),
        ("_is_released", True),
        ("_tail", object()),
        ("_offline", OSError()),
        ("_process", 1),
    ],
)
def test_entrance_asks_before_and_under_the_lock(name: str, value: object) -> None:
    """Whatever keeps appends out, somebody else says so, or lets them in."""
    entrance = Entrance(Appender())
    setattr(entrance, name, value)
    with pytest.raises(KeyError):
        entrance._admit("written")
    with pytest.raises(KeyError):
        entrance._append(run_of(), "written")
    assert [False, True] == entrance.refused
    assert not entrance._write_lock._is_owned()  # type: ignore[attr-defined]
