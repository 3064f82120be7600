"""`CachedCheckpoint`: offsets written at once, later, and after an error."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

from kafkalog import LogStorageError, TopicPartition
from kafkalog.files.names import RECOVERY_POINT_CHECKPOINT
from kafkalog.manager.checkpoints import CachedCheckpoint
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support.simulated_disk import SimulatedDisk

PATH = Path("/data") / RECOVERY_POINT_CHECKPOINT
ONE, TWO, GONE = (TopicPartition("orders", number) for number in (1, 2, 3))


def loaded(
    offsets: dict[TopicPartition, int] | None = None,
) -> tuple[SimulatedDisk, CachedCheckpoint]:
    """Return a checkpoint that was loaded from a file with the offsets."""
    disk = SimulatedDisk()
    disk.make_durable(PATH.parent)
    if offsets is not None:
        OffsetCheckpoint(disk, PATH).write(offsets)
    notes = CachedCheckpoint(disk, PATH)
    notes.load({ONE, TWO})
    return disk, notes


def on_disk(disk: SimulatedDisk) -> dict[TopicPartition, int]:
    """Return the content of the file."""
    return OffsetCheckpoint(disk, PATH).read()


def test_load_creates_a_missing_file_and_drops_unknown_partitions() -> None:
    """A new partition of the same name must not get their offsets."""
    disk, notes = loaded()
    assert {} == on_disk(disk)
    disk, notes = loaded({ONE: 5, GONE: 7})
    assert (5, None, None) == (notes.get(ONE), notes.get(TWO), notes.get(GONE))
    assert notes.write()
    assert {ONE: 5} == on_disk(disk)
    assert not notes.write()


def test_load_damaged_file_uses_nothing_of_it() -> None:
    """The next write replaces it."""
    disk = SimulatedDisk()
    disk.make_durable(PATH.parent)
    disk.open(PATH, create=True).pwrite(b"rubbish", 0)
    notes = CachedCheckpoint(disk, PATH)
    notes.load({ONE})
    assert notes.get(ONE) is None
    assert notes.write()
    assert {} == on_disk(disk)


def test_higher_offset_is_cached_and_lower_offset_is_written_at_once() -> None:
    """The file may have a smaller offset than the true one, never a larger one."""
    disk, notes = loaded({ONE: 5})
    notes.write_or_cache(ONE, 9)
    notes.write_or_cache(TWO, 3)
    assert {ONE: 5} == on_disk(disk)
    notes.write_or_cache(ONE, 7)
    assert {ONE: 5} == on_disk(disk)
    notes.write_or_cache(ONE, 4)
    assert {ONE: 4, TWO: 3} == on_disk(disk)
    notes.set(TWO, None)
    notes.remove(ONE)
    assert {} == on_disk(disk)


def test_write_through_error_keeps_the_old_offset() -> None:
    """The file may have either offset, so the next one is always written."""
    disk, notes = loaded({ONE: 5})
    disk.fail_at(1, errno.EIO, only=frozenset({"sync_directory"}))
    with pytest.raises(LogStorageError):
        notes.write_through(ONE, 8)
    assert 5 == notes.get(ONE)
    notes.write_or_cache(ONE, 6)
    assert {ONE: 6} == on_disk(disk)
    notes.write_through(ONE, 6)
    disk.calls.clear()
    notes.write_through(ONE, 6)
    assert 0 == disk.calls.total()


def test_write_through_in_many_threads_writes_every_offset() -> None:
    """Each thread finds its offset on the disk when it returns."""
    disk, notes = loaded()
    start = threading.Barrier(8)
    missing: list[int] = []

    def put(number: int) -> None:
        partition = TopicPartition("many", number)
        start.wait(timeout=30)
        for offset in range(1, 20):
            notes.write_through(partition, offset)
            if on_disk(disk).get(partition, -1) < offset:
                missing.append(offset)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert [] == missing
    assert {19} == set(on_disk(disk).values())
