"""What a task lets go of while it writes, and what it keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.files.filesystem import FileHandle
from kafkalog.spark.write_behind import WriteBehind
from tests.support.simulated_disk import SimulatedDisk

MIB = 1 << 20
FILE = Path("/staged")


class Counted:
    """A handle that keeps what was asked of it."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []
        self.gone: list[tuple[int, int]] = []

    def begin_write_back(self, position: int, size: int) -> None:
        """Keep a range."""
        self.begun.append((position, size))

    def drop_cache(self, position: int, size: int) -> None:
        """Keep a range."""
        self.gone.append((position, position + size))


def grown(size: int, batch: int, keep: int) -> Counted:
    """Return what was asked while a file grew by batches."""
    handle, behind = Counted(), WriteBehind(keep)
    for position in range(0, size, batch):
        behind.wrote(handle, position, batch)  # type: ignore[arg-type]
    return handle


def test_file_that_a_commit_may_copy_stays_in_memory() -> None:
    """It goes to the disk early all the same, stretch by stretch."""
    handle = grown(32 * MIB, MIB, 32 * MIB)
    assert [(start, 8 * MIB) for start in range(0, 32 * MIB, 8 * MIB)] == handle.begun
    assert [] == handle.gone


def test_large_file_leaves_memory_but_for_its_end_and_its_headers() -> None:
    """What goes to the disk just now stays a while, and of each batch the first page for good."""
    handle = grown(48 * MIB, MIB, 32 * MIB)
    assert [(start + 4096, start + MIB) for start in range(0, 40 * MIB, MIB)] == handle.gone


def test_small_batches_stay() -> None:
    """A commit looks at the header of each, and for small ones that is nearly all there is."""
    handle = grown(48 * MIB, 16 * 1024, 32 * MIB)
    assert 6 == len(handle.begun)
    assert [] == handle.gone


def test_failed_write_back_fails_the_writing() -> None:
    """The sync at the end would not say it again."""
    disk = SimulatedDisk()
    handle: FileHandle = disk.open(FILE, create=True)
    behind = WriteBehind(0)
    handle.pwrite(bytes(MIB), 0)
    disk.fail_write_back(FILE)
    behind.wrote(handle, 0, 8 * MIB)
    with pytest.raises(OSError, match="error"):
        behind.wrote(handle, 8 * MIB, 8 * MIB)
