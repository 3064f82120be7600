"""View of a log: visible offsets, checks of offsets, and refreshes after the writer's changes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from kafkalog import LogClosedError, LogStorageError, OffsetOutOfRangeError
from kafkalog.errors import CorruptRecordError
from kafkalog.files.names import SegmentFiles
from kafkalog.log.isolation import Isolation
from kafkalog.log.view import PAUSES_SECONDS, LogView
from kafkalog.state.leader_epochs import EpochEnd
from tests.support.log_parts import DIRECTORY, LogParts
from tests.support.producer_batches import Produced

P = 7


def with_open_transaction() -> LogParts:
    """Return a log of six offsets with a transaction that is open from offset 3 on."""
    parts = LogParts()
    parts.append(Produced(-1, count=3), Produced(P, transactional=True, count=2), Produced(-1))
    return parts


def missed_file(parts: LogParts, view: LogView, base_offset: int) -> LogStorageError:
    """Return the error that a read of a removed segment raises."""
    with pytest.raises(LogStorageError) as caught, view.errors():
        parts.disk.open(SegmentFiles(DIRECTORY, base_offset).log)
    return caught.value


def test_snapshot_of_a_closed_log_raises() -> None:
    """The last published snapshot can still be read."""
    parts = LogParts()
    parts.append()
    parts.gate.state.close()
    view = parts.view
    assert view.is_closed
    for call in (view.snapshot, view.ensure_open, view.segments, lambda: view.log_end_offset):
        with pytest.raises(LogClosedError) as caught:
            call()
        assert str(DIRECTORY) == caught.value.path
    assert (1, 0) == (view.last_snapshot.end_offset, view.log_start_offset)


@pytest.mark.parametrize(
    ("high_watermark", "isolation", "expected"),
    [
        (None, "log_end", 6),
        (None, "read_uncommitted", 6),
        (None, "read_committed", 3),
        (5, "log_end", 6),
        (5, "read_uncommitted", 5),
        (5, "read_committed", 3),
        (2, "read_uncommitted", 2),
        (2, "read_committed", 2),
        (99, "read_uncommitted", 6),
    ],
)
def test_visible_is_limited_by_high_watermark_and_isolation(
    high_watermark: int | None, isolation: Isolation, expected: int
) -> None:
    """The offset and the snapshot belong together."""
    parts = with_open_transaction()
    parts.state.producers.set_high_watermark(high_watermark)
    snapshot, end = parts.view.visible(isolation)
    assert (parts.local.snapshot, expected) == (snapshot, end)


def test_visible_of_an_unknown_isolation_raises() -> None:
    """The error names the three levels."""
    with pytest.raises(ValueError, match=r'"log_end", got \'serializable\''):
        LogParts().view.visible("serializable")  # type: ignore[arg-type]


def test_stable_offsets_rise_when_the_transaction_ends() -> None:
    """The marker is below the high watermark only when the high watermark is at its end."""
    parts = with_open_transaction()
    view = parts.view
    assert (3, 3) == (view.first_unstable_offset, view.last_stable_offset)
    parts.state.producers.set_high_watermark(6)
    parts.append(Produced(P, ends="commit"))
    assert (3, 3, 6) == (view.first_unstable_offset, view.last_stable_offset, view.high_watermark)
    parts.state.producers.set_high_watermark(None)
    assert (None, 7) == (view.first_unstable_offset, view.last_stable_offset)


def test_check_range_returns_the_snapshot_of_a_held_offset() -> None:
    """The log end offset is allowed, and so are integers of other types."""
    view = with_open_transaction().view
    snapshot = view.snapshot()
    for offset in (0, 3, 6):
        assert snapshot is view.check_range(snapshot, offset)
    assert snapshot is view.check_range(snapshot, np.int64(4))  # type: ignore[arg-type]


@pytest.mark.parametrize("offset", [-1, 2, 7])
def test_check_range_outside_of_the_log_raises(offset: int) -> None:
    """The error has the offset, and both ends of the log."""
    parts = with_open_transaction()
    with parts.state.moving_start():
        parts.local.replace_all(parts.local.snapshot.replace(start_offset=3))
    with pytest.raises(OffsetOutOfRangeError, match="which holds 3 to 6") as caught:
        parts.view.check_range(parts.view.snapshot(), offset)
    error = caught.value
    assert (offset, 3, 6) == (error.requested, error.log_start_offset, error.log_end_offset)
    assert str(DIRECTORY) == error.path


@pytest.mark.parametrize("offset", [True, 1.0, "1", None])
def test_check_range_of_no_integer_raises(offset: object) -> None:
    """Booleans are refused, too."""
    view = LogParts().view
    with pytest.raises(TypeError, match=f"offset must be an int, got {type(offset).__name__}"):
        view.check_range(view.snapshot(), offset)  # type: ignore[arg-type]


def test_follower_snapshot_has_what_the_writer_appended() -> None:
    """Transactions of the writer limit committed reads, and its epochs are read from its file."""
    writer = LogParts()
    writer.append(Produced(-1))
    view = LogParts(writer.disk, read_only=True).view
    writer.append(Produced(-1, count=2), epoch=4)
    writer.append(Produced(P, transactional=True), epoch=4)
    assert 1 == view.last_snapshot.end_offset
    assert (4, 4, 3) == (view.log_end_offset, view.high_watermark, view.last_stable_offset)
    assert [P] == [each.producer_id for each in view.open_transactions()]
    assert EpochEnd(0, 1) == view.end_offset_for_epoch(3)


def test_refresh_after_a_removed_file_returns_the_writers_log() -> None:
    """The offset that the reader needs is still in the log."""
    writer = LogParts()
    writer.append(Produced(-1, count=2))
    writer.roll()
    writer.append(Produced(-1))
    view = LogParts(writer.disk, read_only=True).view
    before = view.snapshot()
    with writer.state.truncating():
        writer.cut(1)
    fresh = view.refresh_after(missed_file(writer, view, 2), before, 1)
    assert (3, 1) == (before.end_offset, fresh.end_offset)
    assert view.last_snapshot is fresh


@pytest.mark.parametrize("offset", [2, 60])
def test_refresh_after_a_removed_offset_raises_out_of_range(offset: int) -> None:
    """The error describes the log as it is now."""
    writer = LogParts()
    writer.append(Produced(-1, count=3))
    view = LogParts(writer.disk, read_only=True).view
    before = view.snapshot()
    with writer.state.truncating():
        writer.restart(50)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        view.refresh_after(missed_file(writer, view, 0), before, offset)
    error = caught.value
    assert (offset, 50, 50) == (error.requested, error.log_start_offset, error.log_end_offset)


def test_refresh_after_a_file_that_is_back_returns_the_same_files() -> None:
    """A cleaner of the writer may have renamed the file for a moment."""
    writer = LogParts()
    writer.append()
    view = LogParts(writer.disk, read_only=True).view
    before = view.snapshot()
    assert before == view.refresh_after(missed_file(writer, view, 5), before, 1)


def test_refresh_after_all_files_were_removed_raises_when_the_pauses_are_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The writer may be between two steps of a truncation until then."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    writer = LogParts()
    writer.append()
    view = LogParts(writer.disk, read_only=True).view
    before = view.snapshot()
    writer.disk.unlink(SegmentFiles(DIRECTORY, 0).log)
    error = missed_file(writer, view, 0)
    with pytest.raises(LogStorageError) as caught:
        view.refresh_after(error, before)
    assert error is caught.value
    assert list(PAUSES_SECONDS) == pauses


@pytest.mark.parametrize("read_only", [False, True])
def test_refresh_after_an_error_of_another_cause_raises_it(
    monkeypatch: pytest.MonkeyPatch, *, read_only: bool
) -> None:
    """The writer's own view raises every error again. There is no pause."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    writer = LogParts()
    writer.append()
    view = LogParts(writer.disk, read_only=True).view if read_only else writer.view
    error = CorruptRecordError("the CRC is wrong")
    with pytest.raises(CorruptRecordError) as caught:
        view.refresh_after(error, view.snapshot())
    assert error is caught.value
    assert 0 == sum(pauses)


def test_refresh_of_a_closed_log_raises() -> None:
    """An error of the library stays; any other one is the cause of a LogClosedError."""
    parts = LogParts()
    snapshot = parts.view.snapshot()
    parts.gate.state.close()
    with pytest.raises(LogClosedError, match="was closed") as caught:
        parts.view.refresh_after(ValueError("the mapping is closed"), snapshot)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(CorruptRecordError):
        parts.view.refresh_after(CorruptRecordError("wrong"), snapshot)


def test_end_before_returns_the_end_of_the_segment_before() -> None:
    """It is 0 before the first segment."""
    parts = LogParts()
    parts.append(Produced(-1, count=4))
    parts.roll()
    assert (4, 0) == (parts.view.end_before(4), parts.view.end_before(0))
