"""Replacement of several segments by one: removed files, open readers, other processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import FileSystem, Log
from kafkalog.errors import DiskFullError, LogCleaningAbortedError
from kafkalog.files.names import FileKind, FileState, SegmentFiles
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.cleaner_access import LastProducerBatch, cleaner_access
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.producing import Client
from tests.support.simulated_disk import SimulatedDisk

DIRECTORY = Path("/data/orders-0")
DELAY_MS = 60_000
# Some records of each of three segments with four records, but none of the last one.
KEPT = (0, 2, 3, 5)


def offsets(log: Log) -> list[int]:
    """Return the offsets of all records."""
    return [record.offset for record in log.records()]


def write_log(log: Log) -> None:
    """Write three segments of four batches, and the active one."""
    for base in (0, 4, 8, 12):
        for number in range(base, base + 4):
            log.append(numbered(number, 1))
        if base < 12:
            log.roll()
    log.flush()


def put_cleaned(log: Log, disk: FileSystem, kept: tuple[int, ...] = KEPT) -> None:
    """Write the `.cleaned` segment with the kept batches of the first three."""
    data = b"".join(
        bytes(batch.data) for batch in log.batches(0, 12) if batch.header.base_offset in kept
    )
    files = SegmentFiles(log.directory, 0, FileState.CLEANED)
    for kind in (FileKind.LOG, FileKind.OFFSET_INDEX, FileKind.TIME_INDEX):
        handle = disk.open(files.path(kind), create=True)
        handle.pwrite(data if kind is FileKind.LOG else b"", 0)
        handle.sync()
        handle.close()


def states(disk: SimulatedDisk) -> dict[FileState, set[str]]:
    """Return the names of segment files by the state in their suffix."""
    names = disk.list(DIRECTORY)
    return {
        state: {name for name in names if name.endswith(state.value)}
        for state in FileState
        if state is not FileState.LIVE
    }


@pytest.mark.parametrize("kept", [KEPT, ()], ids=["some records", "none"])
def test_replaced_segments_are_unlinked_after_the_delay(kept: tuple[int, ...]) -> None:
    """Readers from before read the old records; appends continue."""
    disk, clock = SimulatedDisk(), ManualClock()
    scheduler = ManualScheduler(clock)
    with manual_log(DIRECTORY, clock=clock, scheduler=scheduler, filesystem=disk) as log:
        write_log(log)
        reading, held = log.records(), log.read(4)
        assert 0 == next(reading).offset
        put_cleaned(log, disk, kept)
        cleaner_access(log).replace_segments(log.segments()[:3], [0])
        assert [0, 12] == [segment.base_offset for segment in log.segments()]
        assert [*kept, *range(12, 16)] == offsets(log)
        assert list(range(1, 16)) == [record.offset for record in reading]
        assert 4 == next(iter(held.batches())).base_offset
        assert 16 == log.append(numbered(16, 1)).first_offset
        left = states(disk)
        assert not left[FileState.CLEANED] | left[FileState.SWAP]
        deleted = left[FileState.DELETED]
        assert {f"{base:020}.log.deleted" for base in (4, 8)} <= deleted
        scheduler.advance(DELAY_MS - 1)
        assert deleted == states(disk)[FileState.DELETED]
        scheduler.advance(1)
        assert not states(disk)[FileState.DELETED]
    with manual_log(DIRECTORY, filesystem=disk) as log:
        assert log.recovery_report.clean
        assert not log.recovery_report.rebuilt
        assert [*kept, *range(12, 17)] == offsets(log)
        assert 0 == log.log_start_offset


def test_replaced_segments_keep_the_newest_producer_snapshot() -> None:
    """Without any snapshot the next opening would assume that there was no producer."""
    disk = SimulatedDisk()
    client = Client(7)
    with manual_log(DIRECTORY, filesystem=disk) as log:
        for base in (0, 4, 8):
            for _ in range(4):
                client.send(log)
            if base < 8:
                log.roll()
        log.roll()
        log.flush()
        assert {7: LastProducerBatch(11, 0)} == cleaner_access(log).last_batches()
        put_cleaned(log, disk)
        cleaner_access(log).replace_segments(log.segments()[:3], [0])
        names = disk.list(DIRECTORY)
        assert [f"{12:020}.snapshot"] == [name for name in names if name.endswith(".snapshot")]
        assert {f"{base:020}.snapshot.deleted" for base in (4, 8)} <= set(names)
        disk.unlink(DIRECTORY / f"{12:020}.snapshot")
        assert {7: LastProducerBatch(11, 0)} == cleaner_access(log).last_batches()


@pytest.mark.parametrize("how", ["truncated", "deleted", "witness"])
def test_segments_removed_during_cleaning_are_not_replaced(how: str) -> None:
    """The cleaned files are removed; the log is unchanged, and takes appends."""
    disk = SimulatedDisk()
    with manual_log(DIRECTORY, filesystem=disk) as log:
        write_log(log)
        segments = log.segments()
        put_cleaned(log, disk)
        if how == "deleted":
            log.delete_records(4)
        else:
            log.truncate_to(10)
        before = offsets(log)
        leaving, required_segments = (
            (segments[:2], segments[2:3]) if how == "witness" else (segments[:3], ())
        )
        with pytest.raises(LogCleaningAbortedError, match="has left"):
            cleaner_access(log).replace_segments(leaving, [0], required_segments=required_segments)
        assert before == offsets(log)
        assert not states(disk)[FileState.CLEANED]
        log.append(numbered(99, 1))


def test_full_disk_at_the_markers_leaves_the_log_unchanged() -> None:
    """Nothing was replaced: the log takes appends, and compaction may be repeated."""
    disk = SimulatedDisk()
    with manual_log(DIRECTORY, filesystem=disk) as log:
        write_log(log)
        put_cleaned(log, disk)
        disk.fail_at(1, 28)
        with pytest.raises(DiskFullError):
            cleaner_access(log).replace_segments(log.segments()[:3], [0])
        left = states(disk)
        assert not left[FileState.CLEANED] | left[FileState.SWAP]
        assert list(range(16)) == offsets(log)
        log.append(numbered(16, 1))


class Watched(PosixFileSystem):
    """A disk with a reader of the log that reads after every change of a name."""

    def __init__(self) -> None:
        super().__init__()
        self.reader: Log | None = None
        self.seen: list[list[int]] = []

    def rename(self, source: Path, target: Path) -> None:
        """Rename, and read."""
        super().rename(source, target)
        self._read_other_process()

    def unlink(self, path: Path) -> None:
        """Unlink, and read."""
        super().unlink(path)
        self._read_other_process()

    def sync_directory(self, directory: Path) -> None:
        """Read before the sync that ends a step."""
        self._read_other_process()
        super().sync_directory(directory)

    def _read_other_process(self) -> None:
        if self.reader is not None:
            self.seen.append(offsets(self.reader))


@pytest.mark.parametrize("kept", [KEPT, (), (0, 11)], ids=["some records", "none", "the last"])
def test_reader_during_replacement_sees_old_or_new_records(
    tmp_path: Path, kept: tuple[int, ...]
) -> None:
    """At every step, never both and never a hole; nor old ones after new ones."""
    disk = Watched()
    with manual_log(tmp_path / "orders-0", filesystem=disk) as log:
        write_log(log)
        put_cleaned(log, disk, kept)
        with manual_log(log.directory, read_only=True) as reader:
            disk.reader = reader
            cleaner_access(log).replace_segments(log.segments()[:3], [0])
            disk.reader = None
            assert not reader.corrupt_ranges()
        with manual_log(log.directory, read_only=True) as reader:
            assert [*kept, *range(12, 16)] == offsets(reader)
    changed = disk.seen.index([*kept, *range(12, 16)])
    assert [list(range(16))] * changed == disk.seen[:changed]
    assert {(*kept, *range(12, 16))} == set(map(tuple, disk.seen[changed:]))
    assert 0 < changed
