"""`kafkalog.log.unflushed`: the bytes that are written again, and the method."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog import Record
from kafkalog._core.builder import BatchBuilder
from kafkalog.log.unflushed import REWRITE_BYTES, copy_to_new_blocks, rewrite, unflushed_position
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")
FILE = DATA / "00000000000000000000.log"


def batches(*sizes: int, first: int = 0) -> list[bytes]:
    """Return batches of these record counts, with consecutive offsets."""
    made = []
    for size in sizes:
        builder = BatchBuilder()
        builder.extend_records([Record(value=b"v%d" % n) for n in range(size)], 0, 1, 1 << 20)
        made.append(bytes(builder.finish(base_offset=first)))
        first += size
    return made


def position_of(data: list[bytes], recovery_point: int) -> int:
    """Return the number of whole batches below a recovery point."""
    position = unflushed_position(
        memoryview(b"".join(data)), base_offset=0, recovery_point=recovery_point
    )
    ends = [sum(map(len, data[:count])) for count in range(len(data) + 1)]
    return ends.index(position)


@pytest.mark.parametrize(
    ("recovery_point", "count"), [(0, 0), (1, 0), (2, 1), (4, 1), (5, 2), (6, 3), (9, 3)]
)
def test_unflushed_position_is_the_batch_that_reaches_the_recovery_point(
    recovery_point: int, count: int
) -> None:
    """A batch that straddles it counts as unflushed; the end if all are below."""
    assert count == position_of(batches(2, 3, 1), recovery_point)


def test_unflushed_position_covers_more_batches_than_one_walk() -> None:
    """A walk continues where the last one filled its columns."""
    data = batches(*[1] * 5000)
    assert 4500 == position_of(data, 4500)


@pytest.mark.parametrize("damaged", [8, 11, 17, 65])
def test_unflushed_position_stops_at_damage(damaged: int) -> None:
    """A wrong length, CRC or byte must not lead beyond its batch."""
    data = [bytearray(batch) for batch in batches(1, 1, 1, 1)]
    data[1][damaged] ^= 1
    assert 1 == position_of([bytes(batch) for batch in data], 3)


def test_unflushed_position_rejects_a_length_that_skips_a_batch() -> None:
    """The skipped batch does not count as flushed."""
    data = [bytearray(batch) for batch in batches(1, 1, 1, 1)]
    size = len(data[1])
    data[1][8:12] = (2 * size - 12).to_bytes(4, "big")
    assert 1 == position_of([bytes(batch) for batch in data], 3)


def written_after(content: bytes, position: int) -> tuple[SimulatedDisk, int]:
    """Rewrite a file whose sync failed; return the disk and the result of `rewrite`."""
    disk = SimulatedDisk()
    disk.keeps_unwritten = False
    disk.make_durable(DATA)
    handle = disk.open(FILE, create=True)
    handle.pwrite(content[:position], 0)
    handle.sync()
    disk.sync_directory(DATA)
    handle.pwrite(content[position:], position)
    disk.fail_at(1, only=frozenset({"sync"}))
    with pytest.raises(OSError, match="Input/output"):
        handle.sync()
    return disk, rewrite(disk, FILE, position)


@pytest.mark.parametrize("position", [0, 1, 700, REWRITE_BYTES + 5])
def test_rewrite_syncs_every_byte_from_the_position(position: int) -> None:
    """The size exceeds one write, and is not a multiple of it."""
    content = bytes(1 + number % 255 for number in range(REWRITE_BYTES + 3000))
    disk, written = written_after(content, position)
    assert len(content) - position == written
    assert content == disk.crash().snapshot()[str(FILE)]


def test_rewrite_keeps_the_length_of_a_file_that_ends_in_zeros() -> None:
    """A batch may end in zeros; a shorter file on the disk would lose its end."""
    content = b"x" * 1000 + bytes(2 * REWRITE_BYTES)
    disk, written = written_after(content, 0)
    assert content == disk.crash().snapshot()[str(FILE)]
    assert REWRITE_BYTES + 1 == written


def test_rewrite_keeps_holes() -> None:
    """A file that was extended before its bytes takes no more space than before."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    handle = disk.open(FILE, create=True)
    handle.pwrite(b"x" * 1000, 0)
    handle.truncate(10 * REWRITE_BYTES)
    assert REWRITE_BYTES == rewrite(disk, FILE, 0)
    assert 10 * REWRITE_BYTES == disk.open(FILE).size()


def test_copy_to_new_blocks_keeps_holes_and_times() -> None:
    """DUR-2: a preallocated tail takes no space, and retention uses the time of the file."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    handle = disk.open(FILE, create=True)
    handle.pwrite(b"x" * 1000, 0)
    handle.truncate(3 * REWRITE_BYTES)
    before, used = disk.stat(FILE), disk.used_bytes
    assert REWRITE_BYTES == copy_to_new_blocks(disk, FILE)
    after = disk.stat(FILE)
    assert before is not None
    assert after is not None
    assert before.file_id != after.file_id
    assert (before.size_bytes, before.modified_ms) == (after.size_bytes, after.modified_ms)
    assert disk.used_bytes <= used + REWRITE_BYTES
    assert b"x" * 1000 == disk.open(FILE).pread(1000, 0)
    assert [FILE.name] == disk.list(DATA)


def aged_file() -> tuple[SimulatedDisk, int]:
    """Return a disk with a file of some age, and its time of last modification."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    disk.open(FILE, create=True).pwrite(b"x" * 1000, 0)
    disk.open(DATA / "other", create=True).pwrite(b"y", 0)
    facts = disk.stat(FILE)
    assert facts is not None
    return disk, facts.modified_ms


def test_rewrite_keeps_the_time_of_last_modification() -> None:
    """Messages of magic 0 have no other age, and nothing was modified."""
    disk, modified_ms = aged_file()
    assert 300 == rewrite(disk, FILE, 700)
    facts = disk.stat(FILE)
    assert facts is not None
    assert modified_ms == facts.modified_ms


def test_rewrite_of_another_users_file_changes_its_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """More users may write a file than may set its time."""
    disk, modified_ms = aged_file()
    disk.fail_at(1, errno.EPERM, only=frozenset({"set_modified_ms"}))
    assert 300 == rewrite(disk, FILE, 700)
    facts = disk.stat(FILE)
    assert facts is not None
    assert modified_ms < facts.modified_ms
    assert "looks modified now" in caplog.text


@pytest.mark.parametrize("size", [0, 100])
def test_rewrite_of_no_bytes_still_syncs(size: int) -> None:
    """A new length, from the cut of a torn tail, may still need a sync."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    handle = disk.open(FILE, create=True)
    handle.pwrite(b"x" * 200, 0)
    handle.sync()
    disk.sync_directory(DATA)
    handle.truncate(size)
    assert 0 == rewrite(disk, FILE, size)
    assert b"x" * size == disk.crash().snapshot()[str(FILE)]
