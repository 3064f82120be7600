"""Producers and leader epochs after changes of a log's segments: truncations, rolls, failures."""

from __future__ import annotations

import errno

import pytest

from kafkalog import LogOfflineError, LogStorageError, ReadOnlyLogError
from kafkalog.files.names import FileKind, FileState, SegmentFiles
from tests.support.log_parts import DIRECTORY, LogParts
from tests.support.producer_batches import Produced

P = 7


def filled() -> LogParts:
    """Return a log of four batches: two epochs, two segments, one producer, one transaction."""
    parts = LogParts()
    parts.append(Produced(P), epoch=2)
    parts.append(Produced(P, sequence=1), epoch=2)
    parts.roll()
    parts.append(Produced(P, sequence=2), epoch=5)
    parts.append(Produced(P, sequence=3, transactional=True), epoch=5)
    return parts


def last_sequence(parts: LogParts) -> int | None:
    """Return the last sequence of the producer, None if the producer is unknown."""
    found = parts.state.producers.find(P)
    return None if found is None else found.last_sequence


@pytest.mark.parametrize(("offset", "latest", "sequence"), [(3, 5, 2), (2, 2, 1), (1, 2, 0)])
def test_truncating_takes_producers_and_epochs_back_together(
    offset: int, latest: int, sequence: int
) -> None:
    """Later appends get a higher epoch than all removed records."""
    parts = filled()
    with parts.state.truncating():
        parts.cut(offset)
    assert (latest, 6) == (parts.epochs.latest, parts.epochs.current)
    assert sequence == last_sequence(parts)
    assert [] == parts.state.producers.transactions()
    assert offset == parts.view.last_stable_offset
    assert [] == parts.offline


def test_truncating_blocks_committed_reads_until_the_producers_are_reloaded() -> None:
    """Uncommitted reads continue; the epoch changes when the segments are complete."""
    parts = filled()
    view = parts.view
    assert 3 == view.last_stable_offset
    with parts.state.truncating():
        assert (0, 4) == (view.last_stable_offset, view.high_watermark)
        parts.cut(3)
        assert (0, 3, 5) == (view.last_stable_offset, view.high_watermark, parts.epochs.current)
        assert 3 == last_sequence(parts)
    assert (3, 6) == (view.last_stable_offset, parts.epochs.current)
    assert 2 == last_sequence(parts)


def test_truncating_without_a_change_leaves_the_state() -> None:
    """Also if the truncation failed before it changed the segments."""
    parts = filled()
    with pytest.raises(OSError, match="refused"), parts.state.truncating():
        raise OSError(errno.EIO, "refused")
    assert (3, 5, 5) == (parts.view.last_stable_offset, parts.epochs.current, parts.epochs.latest)
    with parts.state.truncating():
        pass
    assert (3, 5, 5) == (parts.view.last_stable_offset, parts.epochs.current, parts.epochs.latest)
    assert (3, 1) == (last_sequence(parts), len(parts.state.producers.transactions()))
    assert [] == parts.offline


def test_truncating_failed_after_the_change_raises_the_epoch() -> None:
    """Committed reads stay blocked: the state was not taken back. The caller marks offline."""
    parts = filled()
    with pytest.raises(OSError, match="refused"), parts.state.truncating():
        parts.cut(2)
        raise OSError(errno.EIO, "refused")
    assert (6, 5) == (parts.epochs.current, parts.epochs.latest)
    assert 0 == parts.view.last_stable_offset
    assert 3 == last_sequence(parts)


@pytest.mark.parametrize(("offset", "call"), [(1, "unlink"), (3, "pread")])
def test_truncating_failed_reload_of_producers_marks_offline(offset: int, call: str) -> None:
    """The epochs were truncated before, under a higher epoch; no later append is accepted."""
    parts = filled()
    with pytest.raises(LogStorageError) as caught, parts.state.truncating():
        parts.cut(offset)
        parts.disk.fail_at(1, only=frozenset({call}), suffix=".snapshot")
    assert errno.EIO == caught.value.errno
    assert [caught.value] == parts.offline
    assert (2 if offset == 1 else 5, 6) == (parts.epochs.latest, parts.epochs.current)
    assert 0 == parts.view.last_stable_offset
    with pytest.raises(LogOfflineError):
        parts.gate.ensure_writable()


@pytest.mark.parametrize(("offset", "epoch"), [(0, 6), (2, 6), (9, 5)])
def test_truncating_to_an_empty_log_forgets_producers_and_epochs(offset: int, epoch: int) -> None:
    """The epoch rises only if offsets will be assigned again."""
    parts = filled()
    with parts.state.truncating():
        parts.restart(offset)
    assert (None, epoch) == (parts.epochs.latest, parts.epochs.current)
    assert (None, []) == (last_sequence(parts), parts.state.producers.active())
    assert offset == parts.view.last_stable_offset
    assert not [name for name in parts.disk.list(DIRECTORY) if name.endswith(".snapshot")]


def test_moving_start_of_a_rolled_log_writes_a_producer_snapshot() -> None:
    """A log that did not roll gets no snapshot."""
    parts = filled()
    path = SegmentFiles(DIRECTORY, 4).path(FileKind.SNAPSHOT)
    with parts.state.moving_start():
        pass
    assert parts.disk.stat(path) is None
    with parts.state.moving_start():
        parts.local.roll()
        assert parts.disk.stat(path) is None
    assert parts.disk.stat(path) is not None


def test_moving_start_removes_what_is_below_it() -> None:
    """Snapshots of removed segments do not count; the first epoch begins at the new start."""
    parts = filled()
    parts.append(Produced(P + 1), epoch=5)
    first = parts.local.snapshot.segments.segments[0]
    parts.roll()
    second = parts.local.snapshot.segments.segments[1]
    with parts.state.moving_start():
        parts.local.remove_segments([first, second], start_offset=5)
        assert 2 == parts.epochs.epoch_for(1)
    assert (None, 5) == (parts.epochs.epoch_for(4), parts.epochs.epoch_for(5))
    producers = parts.state.producers
    assert (False, True) == (producers.retain_snapshot(4), producers.retain_snapshot(5))
    left = SegmentFiles(DIRECTORY, 2)
    assert parts.disk.stat(left.path(FileKind.SNAPSHOT)) is None
    assert parts.disk.stat(left.in_state(FileState.DELETED).path(FileKind.SNAPSHOT)) is not None


def test_producers_of_a_read_only_log_raise() -> None:
    """The epochs of a read-only log are there."""
    writer = filled()
    state = LogParts(writer.disk, read_only=True).state
    with pytest.raises(ReadOnlyLogError) as caught:
        _ = state.producers
    assert (str(DIRECTORY), 5) == (caught.value.path, state.epochs.latest)
