"""Producer snapshots in a directory: which is taken, which go, what a crash may bring back."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.errors import DiskFullError, LogStorageError
from kafkalog.state.producer_snapshot import ProducerSnapshotEntry, read_snapshot, write_snapshot
from kafkalog.state.producer_state_manager import ProducerStateManager
from kafkalog.state.producers import ProducerChecks, ProducerStates
from kafkalog.state.snapshot_files import SnapshotFiles
from tests.support.simulated_disk import PowerCut, SimulatedDisk

DIRECTORY = Path("/data/orders-0")
EXPIRATION_MS = 1000


@pytest.fixture(name="disk")
def fixture_disk() -> SimulatedDisk:
    """Return a disk with a durable partition directory."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY)
    return disk


def path_of(offset: int, suffix: str = "") -> Path:
    """Return the path of a snapshot."""
    return DIRECTORY / f"{offset:020d}.snapshot{suffix}"


def entry_at(offset: int, *, timestamp_ms: int = 5000) -> ProducerSnapshotEntry:
    """Return an entry that identifies the snapshot it was made for."""
    return ProducerSnapshotEntry(offset, 0, 0, offset - 1, 0, timestamp_ms, -1, -1)


def with_snapshots(disk: SimulatedDisk, *offsets: int) -> SnapshotFiles:
    """Return the files after snapshots were written there."""
    for offset in offsets:
        write_snapshot(disk, path_of(offset), [entry_at(offset)])
    return SnapshotFiles(disk, DIRECTORY)


def names(disk: SimulatedDisk) -> list[str]:
    """Return the names in the directory."""
    return disk.list(DIRECTORY)


def manager_of(disk: SimulatedDisk, end_offset: int = 0) -> ProducerStateManager:
    """Return a manager that has loaded nothing yet."""
    states = ProducerStates(DIRECTORY, end_offset=end_offset)
    return ProducerStateManager(states, SnapshotFiles(disk, DIRECTORY), EXPIRATION_MS)


def produce(manager: ProducerStateManager, producer_id: int, count: int = 10) -> None:
    """Append one batch to the state."""
    first = manager.states.end_offset
    append = manager.states.begin_append(ProducerChecks.NONE)
    append.add_data(producer_id, 0, 0, first, first + count - 1, 5000, False)
    append.commit()
    manager.states.advance_to(first + count)


def test_snapshot_files_only_live_files_count(disk: SimulatedDisk) -> None:
    """Not those in deletion, not temporary ones, not other files."""
    for name in ("leader-epoch-checkpoint", "00000000000000000007.log", path_of(9, ".tmp").name):
        disk.open(DIRECTORY / name, create=True)
    write_snapshot(disk, path_of(8, ".deleted"), [])
    files = with_snapshots(disk, 30, 10, 20)
    assert (10, 20, 30) == files.offsets
    assert 30 == files.latest_offset
    assert "[10, 20, 30]" in repr(files)
    assert SnapshotFiles(disk, Path("/data")).latest_offset is None


def test_load_latest_removes_damaged_snapshots(disk: SimulatedDisk) -> None:
    """An older one and more replaying give the same state."""
    files = with_snapshots(disk, 10, 20, 30, 40)
    disk.open(path_of(30), write=True).pwrite(b"\xee", 20)
    disk.unlink(path_of(40))
    assert (20, [entry_at(20)]) == files.load_latest()
    assert (10, 20) == files.offsets
    assert [path_of(10).name, path_of(20).name] == names(disk)
    for offset in (10, 20):
        disk.open(path_of(offset), write=True).truncate(0)
    assert files.load_latest() is None
    assert [] == names(disk)


def test_load_latest_disk_error_is_raised(disk: SimulatedDisk) -> None:
    """A snapshot that cannot be read now is not removed."""
    files = with_snapshots(disk, 10)
    disk.fail_at(1, only=frozenset({"pread"}))
    with pytest.raises(LogStorageError, match="reading failed"):
        files.load_latest()
    assert [path_of(10).name] == names(disk)
    disk.fail_at(1, only=frozenset({"list"}))
    with pytest.raises(LogStorageError, match="listing failed"):
        SnapshotFiles(disk, DIRECTORY)
    disk.capacity_bytes = 0
    with pytest.raises(DiskFullError):
        files.write(20, [])
    assert (10,) == files.offsets


@pytest.mark.parametrize(
    ("start", "end", "kept"),
    [
        (0, 100, (10, 20, 30)),
        (10, 30, (10, 20, 30)),
        (11, 30, (20, 30)),
        (9, 29, (10, 20)),
        (30, 30, (30,)),
        (31, 40, ()),
        (-1, -1, ()),
    ],
)
def test_truncate_removes_snapshots_outside_of_the_log(
    disk: SimulatedDisk, start: int, end: int, kept: tuple[int, ...]
) -> None:
    """Above the end, at the start and below it."""
    files = with_snapshots(disk, 10, 20, 30)
    files.truncate(start, end)
    assert kept == files.offsets == SnapshotFiles(disk, DIRECTORY).offsets


@pytest.mark.parametrize(
    ("bases", "kept"),
    [
        ([0, 10, 20], (10, 20, 50)),
        ([0, 10, 40], (10, 40, 50)),
        ([0, 50], (50,)),
        ([60], ()),
        ([], (50,)),
        ([0, 10, 20, 30, 40, 50], (10, 20, 30, 40, 50)),
    ],
)
def test_remove_strays_keeps_the_newest_above_all_segments(
    disk: SimulatedDisk, bases: list[int], kept: tuple[int, ...]
) -> None:
    """That one was written when the log was closed."""
    files = with_snapshots(disk, 10, 20, 30, 40, 50)
    files.remove_strays(bases)
    assert kept == files.offsets == SnapshotFiles(disk, DIRECTORY).offsets


def test_mark_deleted_renames_the_snapshot(disk: SimulatedDisk) -> None:
    """Its file is removed with those of the segment; a missing file is ignored."""
    files = with_snapshots(disk, 10, 20)
    assert path_of(10, ".deleted") == files.mark_deleted(10)
    assert [path_of(10, ".deleted").name, path_of(20).name] == names(disk)
    assert files.mark_deleted(10) is None
    disk.unlink(path_of(20))
    assert files.mark_deleted(20) is None
    assert () == files.offsets


def test_snapshot_files_read_only_are_not_changed(disk: SimulatedDisk) -> None:
    """Removals change the list only; writes do nothing."""
    with_snapshots(disk, 10, 20, 30)
    disk.open(path_of(30), write=True).truncate(5)
    before = disk.snapshot()
    files = SnapshotFiles(disk, DIRECTORY, read_only=True)
    files.write(40, [])
    assert (20, [entry_at(20)]) == files.load_latest()
    files.mark_deleted(20)
    files.truncate(-1, 5)
    assert not files.offsets
    assert before == disk.snapshot()


def test_truncate_crash_does_not_restore_snapshots_above(disk: SimulatedDisk) -> None:
    """Whatever a crash takes, once `truncate` returned: others may be written there now."""
    with_snapshots(disk, 10, 20, 30)
    disk.make_durable()
    for number in range(1, 20):
        attempt = disk.crash()
        files = SnapshotFiles(attempt, DIRECTORY)
        attempt.crash_at(number)
        try:
            files.truncate(0, 15)
        except PowerCut:
            continue
        for choice, state in attempt.crash_states(40):
            assert (10,) == SnapshotFiles(state, DIRECTORY).offsets, choice
        break
    assert 4 == number


def test_take_snapshot_unchanged_state_writes_nothing(disk: SimulatedDisk) -> None:
    """One for each end, with what is known there."""
    manager = manager_of(disk)
    assert not manager.take_snapshot()
    produce(manager, 7)
    assert manager.take_snapshot()
    assert not manager.take_snapshot()
    manager.states.advance_to(15)
    assert manager.take_snapshot(durable=False)
    assert (10, 15) == manager.files.offsets
    entries = [ProducerSnapshotEntry(7, 0, 9, 9, 9, 5000, -1, -1)]
    assert entries == read_snapshot(disk, path_of(15), end_offset=15)
    assert "orders-0" in repr(manager)


def test_truncate_and_reload_loads_the_newest_snapshot_in_the_log(disk: SimulatedDisk) -> None:
    """Or to an empty state at its start; the caller replays the batches after it."""
    manager = manager_of(disk)
    for producer_id in (7, 8, 9):
        produce(manager, producer_id)
        manager.take_snapshot()
    manager.truncate_and_reload(0, 25, 5000)
    assert (20, [7, 8]) == (manager.states.end_offset, list(manager.states.entries))
    assert (10, 20) == manager.files.offsets
    manager.truncate_and_reload(4, 9, 5000)
    assert (4, []) == (manager.states.end_offset, list(manager.states.entries))
    assert not manager.files.offsets
    assert not manager.take_snapshot()


def test_truncate_and_reload_at_the_log_end_keeps_the_state(disk: SimulatedDisk) -> None:
    """Nothing was cut: all five batches of the window stay known."""
    manager = manager_of(disk)
    for number in range(4):
        produce(manager, 7, count=number + 1)
    manager.take_snapshot()
    window = manager.states.entries[7].batches
    manager.truncate_and_reload(3, 10, 5000)
    assert window == manager.states.entries[7].batches
    assert not manager.take_snapshot()
    manager.raise_start(12)
    assert 12 == manager.states.end_offset
    assert manager.take_snapshot()


def test_truncate_and_reload_drops_expired_producers(disk: SimulatedDisk) -> None:
    """Unless the transaction is open."""
    manager = manager_of(disk)
    open_transaction = entry_at(20)._replace(transaction_first_offset=3)
    manager.files.write(30, [entry_at(10), open_transaction, entry_at(25, timestamp_ms=5500)])
    manager.truncate_and_reload(0, 40, 5000 + EXPIRATION_MS)
    assert {20, 25} == set(manager.states.entries)
    assert 1 == manager.remove_expired(10_000)
    assert [20] == list(manager.states.entries)


def test_reset_removes_state_and_snapshots(disk: SimulatedDisk) -> None:
    """A log that was emptied continues elsewhere, above or below."""
    manager = manager_of(disk)
    produce(manager, 7)
    manager.take_snapshot()
    manager.reset(3)
    assert (3, 0, ()) == (
        manager.states.end_offset,
        len(manager.states),
        manager.files.offsets,
    )
    for _choice, state in disk.crash_states(20):
        assert () == SnapshotFiles(state, DIRECTORY).offsets


def test_snapshots_crash_at_any_call_leaves_a_true_snapshot(
    disk: SimulatedDisk,
) -> None:
    """The loaded state is one of the earlier states, and not of a truncated part."""

    def live(manager: ProducerStateManager, seen: list[tuple[int, list[int]]]) -> None:
        def note() -> None:
            seen.append((manager.states.end_offset, sorted(manager.states.entries)))

        produce(manager, 1)
        note()
        manager.take_snapshot(durable=False)
        produce(manager, 2)
        note()
        manager.take_snapshot()
        manager.truncate_and_reload(0, 15, 5000)
        # Other batches replace those from 10 on: the state at 20 is a different one now.
        seen[:] = [each for each in seen if each[0] <= 15]
        produce(manager, 3)
        note()
        manager.take_snapshot()

    for number in range(1, 60):
        attempt = disk.crash()
        seen: list[tuple[int, list[int]]] = [(0, [])]
        attempt.crash_at(number)
        ended = True
        try:
            live(manager_of(attempt), seen)
        except PowerCut:
            ended = False
        for choice, state in attempt.crash_states(20, seed=number):
            found = manager_of(state)
            found.truncate_and_reload(0, 100, 5000)
            loaded = (found.states.end_offset, sorted(found.states.entries))
            assert loaded in seen, choice
            assert not ended or loaded == seen[-1], choice
        if ended:
            break
    assert number > 15


def test_sync_makes_written_snapshots_durable(
    disk: SimulatedDisk,
) -> None:
    """Their names, too; a snapshot that was removed is ignored."""
    files = SnapshotFiles(disk, DIRECTORY)
    files.write(10, [entry_at(10)], durable=False)
    files.write(20, [entry_at(20)], durable=False)
    disk.unlink(path_of(10))
    files.sync([10, 20])
    left = disk.crash()
    assert [entry_at(20)] == read_snapshot(left, path_of(20), end_offset=20)


def test_sync_disk_error_is_raised(disk: SimulatedDisk) -> None:
    """The recovery point must not rise over it."""
    files = SnapshotFiles(disk, DIRECTORY)
    files.write(10, [entry_at(10)], durable=False)
    disk.fail_at(1, only=frozenset({"sync"}))
    with pytest.raises(LogStorageError):
        files.sync([10])
