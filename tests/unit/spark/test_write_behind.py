"""Write-back and page cache of a file that a task writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.files.filesystem import FileHandle
from kafkalog.spark.write_behind import WriteBehind
from tests.support.simulated_disk import SimulatedDisk

MIB = 1 << 20
FILE = Path("/staged")


class Counted:
    """A handle that records the requested ranges."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, int]] = []
        self.gone: list[tuple[int, int]] = []

    def begin_write_back(self, position: int, size: int) -> None:
        """Record a range."""
        self.begun.append((position, size))

    def drop_cache(self, position: int, size: int) -> None:
        """Record a range."""
        self.gone.append((position, position + size))


def grown(size: int, batch: int, keep: int) -> Counted:
    """Return the requests while a file grew by batches."""
    handle, behind = Counted(), WriteBehind(keep)
    for position in range(0, size, batch):
        behind.wrote(handle, position, batch)  # type: ignore[arg-type]
    return handle


def test_file_below_the_limit_stays_in_the_cache() -> None:
    """A commit may copy it; its write-back begins early, in ranges of 8 MiB."""
    handle = grown(32 * MIB, MIB, 32 * MIB)
    assert [(start, 8 * MIB) for start in range(0, 32 * MIB, 8 * MIB)] == handle.begun
    assert [] == handle.gone


def test_large_file_leaves_the_cache_except_end_and_headers() -> None:
    """Ranges in write-back stay for a while, and the first page of each batch."""
    handle = grown(48 * MIB, MIB, 32 * MIB)
    assert [(start + 4096, start + MIB) for start in range(0, 40 * MIB, MIB)] == handle.gone


def test_small_batches_stay_in_the_cache() -> None:
    """A commit reads each header, which is most of a small batch."""
    handle = grown(48 * MIB, 16 * 1024, 32 * MIB)
    assert 6 == len(handle.begun)
    assert [] == handle.gone


def test_failed_write_back_raises_in_the_next_write() -> None:
    """The sync at the end would not report it again."""
    disk = SimulatedDisk()
    handle: FileHandle = disk.open(FILE, create=True)
    behind = WriteBehind(0)
    handle.pwrite(bytes(MIB), 0)
    disk.fail_write_back(FILE)
    behind.wrote(handle, 0, 8 * MIB)
    with pytest.raises(OSError, match="error"):
        behind.wrote(handle, 8 * MIB, 8 * MIB)
