"""Leader epochs: Kafka's rules of assignment and answers, files that do not rise, crashes."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import BatchColumns, scan_batches
from kafkalog.errors import CorruptStateError, DiskFullError, LogStorageError
from kafkalog.files.names import LEADER_EPOCH_CHECKPOINT
from kafkalog.files.posix import PosixFileSystem
from kafkalog.state.checkpoints import EpochEntry, LeaderEpochCheckpoint
from kafkalog.state.leader_epochs import MAX_EPOCH, UNKNOWN_EPOCH_END, EpochEnd, LeaderEpochs
from tests.support.golden import CLEAN, data_directory
from tests.support.simulated_disk import PowerCut, SimulatedDisk

DATA = Path("/data/orders-0")
PATH = DATA / LEADER_EPOCH_CHECKPOINT

Pairs = list[tuple[int, int]]


@pytest.fixture(name="disk")
def fixture_disk() -> SimulatedDisk:
    """Return a disk with a durable partition directory."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    return disk


def epochs_on(disk: SimulatedDisk, pairs: Pairs | None = None) -> LeaderEpochs:
    """Return the epochs of a disk, with some assigned."""
    epochs = LeaderEpochs(LeaderEpochCheckpoint(disk, PATH))
    for epoch, start_offset in pairs or []:
        epochs.assign(epoch, start_offset)
    return epochs


def in_memory(pairs: Pairs) -> LeaderEpochs:
    """Return epochs without a file."""
    epochs = LeaderEpochs()
    for epoch, start_offset in pairs:
        epochs.assign(epoch, start_offset)
    return epochs


def pairs_of(epochs: LeaderEpochs) -> Pairs:
    """Return the entries as plain pairs."""
    return [(entry.epoch, entry.start_offset) for entry in epochs.entries]


def on_disk(disk: SimulatedDisk) -> Pairs:
    """Return what a start on this disk finds."""
    return [(epoch, start) for epoch, start in LeaderEpochCheckpoint(disk, PATH).read()]


@pytest.mark.parametrize(
    ("before", "assigned", "after"),
    [
        ([], (0, 0), [(0, 0)]),
        ([(0, 0)], (2, 10), [(0, 0), (2, 10)]),
        ([(0, 0)], (0, 10), [(0, 0)]),
        ([(0, 5)], (0, 3), [(0, 3)]),
        ([(0, 0), (2, 10)], (3, 10), [(0, 0), (3, 10)]),
        ([(0, 0), (2, 10)], (3, 5), [(0, 0), (3, 5)]),
        ([(0, 0), (2, 10)], (3, 0), [(3, 0)]),
        ([(0, 0), (2, 10)], (1, 20), [(0, 0), (1, 20)]),
        ([(0, 0), (2, 10), (4, 30)], (1, 5), [(0, 0), (1, 5)]),
        ([(3, 10)], (1, 0), [(1, 0)]),
    ],
)
def test_assign_removes_contradicting_entries(
    disk: SimulatedDisk, before: Pairs, assigned: tuple[int, int], after: Pairs
) -> None:
    """By hand; and the file has it before the call returns."""
    epochs = epochs_on(disk, before)
    writes = disk.calls["pwrite"]
    changed = before != after
    assert changed is epochs.assign(*assigned)
    assert after == pairs_of(epochs) == on_disk(disk)
    assert writes + changed == disk.calls["pwrite"]
    for _choice, state in disk.crash_states(20):
        assert after == on_disk(state)


@pytest.mark.parametrize("pair", [(-1, 0), (0, -1), (MAX_EPOCH + 1, 0)])
def test_assign_invalid_epoch_or_offset_is_refused(pair: tuple[int, int]) -> None:
    """A batch without an epoch is not the caller's to assign."""
    epochs = in_memory([(0, 0)])
    with pytest.raises(ValueError, match=r"epoch must be in 0 to .*, got"):
        epochs.assign(*pair)
    assert [(0, 0)] == pairs_of(epochs)


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, UNKNOWN_EPOCH_END),
        (0, EpochEnd(0, 10)),
        (1, EpochEnd(1, 10)),
        (2, EpochEnd(2, 20)),
        (3, EpochEnd(2, 20)),
        (4, EpochEnd(2, 20)),
        (5, EpochEnd(5, 30)),
        (7, EpochEnd(7, 99)),
        (8, UNKNOWN_EPOCH_END),
    ],
)
def test_end_offset_for_equals_that_of_kafka(epoch: int, expected: EpochEnd) -> None:
    """The latest ends with the log; a gap is answered with what is below it."""
    epochs = in_memory([(2, 10), (5, 20), (7, 30)])
    assert expected == epochs.end_offset_for(epoch, 99)
    assert UNKNOWN_EPOCH_END == LeaderEpochs().end_offset_for(epoch, 99)


def test_epoch_for_offset_is_that_of_its_records() -> None:
    """Returns None below the first epoch."""
    epochs = in_memory([(2, 10), (5, 20), (7, 30)])
    assert [None, 2, 2, 5, 7, 7] == [epochs.epoch_for(each) for each in (9, 10, 19, 20, 30, 99)]
    assert (7, None) == (epochs.latest_epoch, LeaderEpochs().latest_epoch)
    assert "[(2, 10), (5, 20), (7, 30)]" in repr(epochs)


@pytest.mark.parametrize(
    ("end", "kept"),
    [(0, []), (10, []), (11, [(2, 10)]), (20, [(2, 10)]), (30, [(2, 10), (5, 20)])],
)
def test_truncate_from_end_removes_epochs_from_there(
    disk: SimulatedDisk, end: int, kept: Pairs
) -> None:
    """In memory at once, in the file with `flush`."""
    whole = [(2, 10), (5, 20), (7, 30)]
    epochs = epochs_on(disk, whole)
    assert not epochs.truncate_from_end(31)
    assert epochs.truncate_from_end(end)
    assert (kept, whole, True) == (pairs_of(epochs), on_disk(disk), epochs.is_unwritten)
    epochs.flush()
    assert (kept, False) == (on_disk(disk), epochs.is_unwritten)


@pytest.mark.parametrize(
    ("start", "kept"),
    [
        (9, [(2, 10), (5, 20), (7, 30)]),
        (10, [(2, 10), (5, 20), (7, 30)]),
        (15, [(2, 15), (5, 20), (7, 30)]),
        (20, [(5, 20), (7, 30)]),
        (99, [(7, 99)]),
    ],
)
def test_truncate_from_start_moves_the_first_epoch(
    disk: SimulatedDisk, start: int, kept: Pairs
) -> None:
    """The epoch of the start offset stays, and begins at the start offset."""
    whole = [(2, 10), (5, 20), (7, 30)]
    epochs = epochs_on(disk, whole)
    assert (kept != whole) is epochs.truncate_from_start(start)
    assert kept == pairs_of(epochs)
    epochs.flush()
    assert kept == on_disk(disk)


def test_clear_removes_all_epochs(disk: SimulatedDisk) -> None:
    """And an epoch that began where the next one does is replaced."""
    epochs = epochs_on(disk)
    assert not epochs.clear()
    assert all(epochs.assign(*entry) for entry in [(0, 0), (1, 10), (2, 10)])
    assert [(0, 0), (2, 10)] == on_disk(disk)
    assert epochs.clear()
    epochs.flush()
    assert [] == on_disk(disk)


def test_load_reads_the_file_and_has_nothing_to_write(disk: SimulatedDisk) -> None:
    """Also from a file that is not its own, which is left alone."""
    epochs_on(disk, [(0, 0), (4, 9)])
    epochs = epochs_on(disk)
    assert epochs.load()
    assert ([(0, 0), (4, 9)], False) == (pairs_of(epochs), epochs.is_unwritten)
    only_read = LeaderEpochs()
    assert only_read.load()
    assert only_read.load(LeaderEpochCheckpoint(disk, PATH))
    only_read.assign(5, 20)
    only_read.flush()
    assert [(0, 0), (4, 9)] == on_disk(disk)
    assert [(0, 0), (4, 9), (5, 20)] == pairs_of(only_read)


def test_load_file_that_does_not_rise_is_read_as_by_a_broker(disk: SimulatedDisk) -> None:
    """The last of two entries that contradict each other counts; the file is put right later."""
    disk.open(PATH, create=True).pwrite(b"0\n4\n0 0\n3 20\n2 30\n5 25\n", 0)
    with pytest.raises(CorruptStateError):
        LeaderEpochCheckpoint(disk, PATH).read()
    epochs = epochs_on(disk)
    assert epochs.load()
    assert ([(0, 0), (5, 25)], True) == (pairs_of(epochs), epochs.is_unwritten)
    epochs.flush()
    assert [(0, 0), (5, 25)] == on_disk(disk)


def test_load_damaged_file_is_reported_and_rewritten(disk: SimulatedDisk) -> None:
    """The batches of the log know the epochs."""
    disk.open(PATH, create=True).pwrite(b"0\n9\n0 0\n", 0)
    epochs = epochs_on(disk)
    assert not epochs.load()
    epochs.assign_batches(np.array([1, 1, 2], np.int32), np.array([0, 5, 9], np.int64))
    epochs.flush()
    assert [(1, 0), (2, 9)] == on_disk(disk)
    disk.fail_at(1, only=frozenset({"pread"}))
    with pytest.raises(LogStorageError):
        epochs.load()


def test_assign_batches_rising_epochs_count() -> None:
    """As in a broker's recovery: missing, equal and falling epochs are ignored."""
    epochs = in_memory([(2, 5)])
    found = np.array([-1, 2, 1, 4, -1, 3, 4, 9], np.int32)
    assert epochs.assign_batches(found, np.arange(10, 18, dtype=np.int64))
    assert [(2, 5), (4, 13), (9, 17)] == pairs_of(epochs)
    assert not epochs.assign_batches(found, np.arange(20, 28, dtype=np.int64))
    assert not epochs.assign_batches(found[:0], np.zeros(0, np.int64))


def test_assign_batches_of_broker_log_equal_its_checkpoint() -> None:
    """Restored from the batches alone, but for an epoch without records."""
    directory = data_directory(CLEAN) / "epochs-0"
    epochs = LeaderEpochs()
    for path in sorted(directory.glob("*.log")):
        columns = BatchColumns(1000)
        scan_batches(path.read_bytes(), columns=columns)
        count = len(columns)
        epochs.assign_batches(columns.leader_epoch[:count], columns.base_offset[:count])
    expected = LeaderEpochCheckpoint(PosixFileSystem(), directory / LEADER_EPOCH_CHECKPOINT).read()
    assert expected == list(epochs.entries)
    assert len(expected) > 3


def test_flush_after_failed_write_writes_everything(disk: SimulatedDisk) -> None:
    """The records are not appended then; the next batch of the same epoch tries again."""
    epochs = epochs_on(disk, [(0, 0)])
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}))
    with pytest.raises(DiskFullError, match="replacing the checkpoint failed"):
        epochs.assign(1, 10)
    assert (True, [(0, 0)]) == (epochs.is_unwritten, on_disk(disk))
    assert not epochs.assign(1, 12)
    assert [(0, 0), (1, 10)] == on_disk(disk)


Step = Callable[[LeaderEpochs], None]


def cut_and_flush(epochs: LeaderEpochs) -> None:
    """Truncate at the end and write."""
    epochs.truncate_from_end(20)
    epochs.flush()


@pytest.mark.parametrize(
    ("step", "after"),
    [
        (lambda epochs: epochs.assign(4, 30), [(0, 0), (2, 10), (3, 20), (4, 30)]),
        (cut_and_flush, [(0, 0), (2, 10)]),
        (lambda epochs: epochs.assign(4, 20), [(0, 0), (2, 10), (4, 20)]),
    ],
)
def test_flush_crash_at_any_call_leaves_old_or_new(
    disk: SimulatedDisk, step: Step, after: Pairs
) -> None:
    """Whole, and the new one once the call returned; an epoch once assigned never disappears."""
    before = [(0, 0), (2, 10), (3, 20)]
    epochs_on(disk, before)
    disk.make_durable()
    for number in range(1, 30):
        attempt = disk.crash()
        epochs = epochs_on(attempt)
        epochs.load()
        attempt.crash_at(number)
        try:
            step(epochs)
        except PowerCut:
            for choice, state in attempt.crash_states(30, seed=number):
                assert on_disk(state) in (before, after), choice
        else:
            for choice, state in attempt.crash_states(30, seed=number):
                assert after == on_disk(state), choice
            break
    assert 6 == number


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 30)), max_size=12), st.integers(-1, 9))
def test_assign_any_epochs_rise_and_equal_a_list(pairs: Pairs, epoch: int) -> None:
    """Against the rules of the specification, one after the other over a plain list."""
    model: Pairs = []
    epochs = LeaderEpochs()
    for pair in pairs:
        if not model or model[-1][0] != pair[0] or pair[1] < model[-1][1]:
            while model and (model[-1][0] >= pair[0] or model[-1][1] >= pair[1]):
                model.pop()
            model.append(pair)
        epochs.assign(*pair)
    assert model == pairs_of(epochs)
    assert all(
        lower.epoch < upper.epoch and lower.start_offset < upper.start_offset
        for lower, upper in zip(epochs.entries, epochs.entries[1:], strict=False)
    )
    higher = [each for each in model if each[0] > epoch]
    lower_or_equal = [each for each in model if each[0] <= epoch]
    if epoch < 0 or not model or (not higher and model[-1][0] != epoch):
        expected = UNKNOWN_EPOCH_END
    elif model[-1][0] == epoch:
        expected = EpochEnd(epoch, 100)
    elif not lower_or_equal:
        expected = EpochEnd(epoch, higher[0][1])
    else:
        expected = EpochEnd(lower_or_equal[-1][0], higher[0][1])
    assert expected == epochs.end_offset_for(epoch, 100)
    for offset in range(-1, 32):
        starts = [each for each in model if each[1] <= offset]
        assert (starts[-1][0] if starts else None) == epochs.epoch_for(offset)
    assert [EpochEntry(*each) for each in model] == list(epochs.entries)


def test_truncate_from_end_unknown_offset_removes_nothing() -> None:
    """PAR-18: -1 means that the end is unknown, as in Kafka."""
    epochs = LeaderEpochs()
    epochs.assign(3, 20, flush=False)
    before = epochs.entries
    assert not epochs.truncate_from_end(-1)
    assert before == epochs.entries


def test_truncate_empty_list_does_nothing() -> None:
    """PAR-21: neither from the end nor from the start."""
    epochs = LeaderEpochs()
    assert not epochs.truncate_from_end(0)
    assert not epochs.truncate_from_start(5)
    assert not epochs.entries
