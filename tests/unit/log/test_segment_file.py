"""The bytes of one segment file, and the extent of its syncs."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog.files.pool import FilePool
from kafkalog.log.segment_file import SegmentFile
from tests.support.simulated_disk import SimulatedDisk, SimulatedFileHandle

PATH = Path("/data/00000000000000000000.log")


def empty_file(disk: SimulatedDisk) -> SegmentFile:
    """Return a file that takes appends, with its name on the disk."""
    disk.make_durable(PATH.parent)
    handle = disk.open(PATH, create=True)
    disk.make_durable()
    pool = FilePool(disk, max_open_files=4, max_mappings=4)
    return SegmentFile(pool, disk, PATH, 0, handle)


def test_bytes_that_replace_cut_ones_are_synced_again() -> None:
    """The sync before the cut covered other bytes at the same positions."""
    disk = SimulatedDisk()
    file = empty_file(disk)
    file.end.append(b"kept", 4)
    file.end.append(b"failed", 6)
    file.sync()
    file.cut_unpublished(4)
    file.end.append(b"others", 6)
    file.sync()
    assert b"keptothers" == disk.crash().snapshot()[str(PATH)]
    file.close()


def test_bytes_that_are_cut_during_a_sync_do_not_count_as_synced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An append failed; the bytes that replace its bytes need another sync."""
    disk = SimulatedDisk()
    file = empty_file(disk)
    file.end.append(b"kept", 4)
    file.end.append(b"failed", 6)
    syncing = SimulatedFileHandle.sync

    def sync_and_replace(handle: SimulatedFileHandle) -> None:
        syncing(handle)
        monkeypatch.setattr(SimulatedFileHandle, "sync", syncing)
        file.cut_unpublished(4)
        file.end.append(b"others", 6)

    monkeypatch.setattr(SimulatedFileHandle, "sync", sync_and_replace)
    file.sync(4)
    assert 6 == file.unsynced_bytes
    file.sync()
    assert b"keptothers" == disk.crash().snapshot()[str(PATH)]
    file.close()


def test_sync_of_synced_file_does_nothing() -> None:
    """Only new bytes need a sync."""
    disk = SimulatedDisk()
    file = empty_file(disk)
    file.end.append(b"kept", 4)
    for _ in range(3):
        file.sync()
    assert 1 == disk.calls["sync"]
    file.close()


def test_zeros_are_written_ahead_in_steps_up_to_the_full_size() -> None:
    """A step when the end reaches the zeros, none beyond the size; appended bytes are kept."""
    disk = SimulatedDisk()
    file = empty_file(disk)
    file.preallocate(1000, 300)
    written = b""
    for number in range(11):
        piece = bytes([number + 1]) * 100
        file.end.append(piece, 100)
        written += piece
        assert written == file.read(0, 2000)[: len(written)]
        assert max(1000, len(written)) == len(disk.snapshot()[str(PATH)] or b"")
    assert written == disk.snapshot()[str(PATH)]
    # At 100, 500 (400 were covered) and 900, where 100 are missing.
    assert 3 == disk.calls["pwritev"]
    file.close()


def test_zeros_that_cannot_be_written_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """The append is whole, and no later one writes zeros."""
    disk = SimulatedDisk()
    file = empty_file(disk)
    file.preallocate(1000, 300)
    disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwritev"}))
    for _ in range(3):
        file.end.append(b"kept", 4)
    assert b"kept" * 3 + bytes(988) == disk.snapshot()[str(PATH)]
    assert 1 == disk.calls["pwritev"]
    assert "no zeros are written ahead" in caplog.text
    file.close()


def test_zeros_are_cut_with_a_failed_append_and_written_again() -> None:
    """The cut removes the zeros after it; the next append writes new ones."""
    disk = SimulatedDisk()
    file = empty_file(disk)
    file.preallocate(1000, 300)
    file.end.append(b"kept", 4)
    file.cut_unpublished(2)
    assert b"ke" == disk.snapshot()[str(PATH)]
    file.preallocate(1000, 300)
    file.end.append(b"pt", 2)
    assert b"kept" + bytes(996) == disk.snapshot()[str(PATH)]
    assert 2 == disk.calls["pwritev"]
    assert file.trim()
    assert b"kept" == disk.snapshot()[str(PATH)]
    file.close()


def test_sync_of_a_sealed_file_renamed_during_it_succeeds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A deletion may rename the file between the check for unsynced bytes and the sync."""
    disk = SimulatedDisk()
    file = empty_file(disk)
    file.end.append(b"kept", 4)
    file.seal(trim=False)
    opening = disk.open

    def leave(path: Path, *, create: bool = False, write: bool = False) -> object:
        if write:
            file.pin()
            disk.rename(PATH, PATH.with_suffix(".log.deleted"))
        return opening(path, create=create, write=write)

    monkeypatch.setattr(disk, "open", leave)
    file.sync()
    assert 0 == file.unsynced_bytes
    file.close()


def test_sync_of_a_missing_sealed_file_raises() -> None:
    """A file of the log that is missing was not synced."""
    disk = SimulatedDisk()
    file = empty_file(disk)
    file.end.append(b"kept", 4)
    file.seal(trim=False)
    disk.unlink(PATH)
    with pytest.raises(FileNotFoundError):
        file.sync()
    file.close()
