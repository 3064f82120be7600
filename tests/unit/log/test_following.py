"""Cost of following a writer depends on new bytes only; logs that change during a read."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from kafkalog import (
    Clock,
    Log,
    LogConfig,
    LogManager,
    LogStorageError,
    NotALogError,
    Record,
    SystemClock,
    open_log,
)
from kafkalog._core.index import OffsetIndexView
from kafkalog.files.errors import ShortFileError
from kafkalog.files.filesystem import FileExtent, FileFacts
from kafkalog.files.pool import FilePool
from kafkalog.files.posix import PosixFileHandle, PosixFileSystem
from kafkalog.indexes.kinds import OFFSET_INDEX
from kafkalog.indexes.segment_index import IndexStorage, SegmentIndex
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import ManualClock


class CountingFileSystem(PosixFileSystem):
    """A file system that counts look-ups of names."""

    __slots__ = ("calls",)

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.calls: list[str] = []

    def stat(self, path: Path) -> FileFacts | None:
        """Return the facts, and count the call."""
        self.calls.append(f"stat {path.name}")
        return super().stat(path)

    def list(self, directory: Path) -> list[str]:
        """Return the names, and count the call."""
        self.calls.append("list")
        return super().list(directory)


def late_clock() -> ManualClock:
    """Return a clock to which every change of a file is an hour old, or a little less."""
    return ManualClock(SystemClock().now_ms() + 3_600_000)


def make_old(directory: Path) -> None:
    """Make the last change of the directory old, so that the next one is sure to show."""
    os.utime(directory, (10**9, 10**9))


def test_refresh_cost_is_independent_of_the_number_of_segments(directory: Path) -> None:
    """SRV-4: nothing is listed, and one segment is read once, while nothing has changed."""
    with manual_log(directory, segment_bytes=600) as writer:
        costs = []
        for count in (3, 30):
            while len(writer.segments()) < count:
                writer.append(numbered(writer.log_end_offset, 10))
            make_old(directory)
            disk = CountingFileSystem(late_clock())
            with manual_log(directory, read_only=True, filesystem=disk) as reader:
                assert reader.log_end_offset == writer.log_end_offset
                disk.calls.clear()
                for _ in range(5):
                    assert reader.log_end_offset == writer.log_end_offset
                    assert reader.log_start_offset == 0
                assert "list" not in disk.calls
                costs.append(len([call for call in disk.calls if call.endswith(".log")]))
        assert costs == [1, 1]


def test_reader_of_an_old_directory_sees_every_change(directory: Path) -> None:
    """SRV-4: appends, rolls, deletions and truncations show with the next refresh."""
    disk = PosixFileSystem(late_clock())
    with (
        manual_log(directory, segment_bytes=600, file_delete_delay_ms=0) as writer,
        manual_log(directory, read_only=True, filesystem=disk) as reader,
    ):
        for step in range(60):
            make_old(directory)
            assert reader.log_end_offset == writer.log_end_offset
            if step % 7 == 3:
                writer.truncate_to(max(writer.log_end_offset - 4, writer.log_start_offset))
            elif step % 11 == 5:
                start = max(writer.log_end_offset - 5, writer.log_start_offset)
                writer.delete_records(start)
            else:
                writer.append(numbered(step, 1 + step % 4))
            assert reader.log_end_offset == writer.log_end_offset
            assert reader.log_start_offset == writer.log_start_offset
            assert [record.value for record in reader.records()] == [
                record.value for record in writer.records()
            ]


def test_recent_directory_change_has_no_change_mark(directory: Path) -> None:
    """SRV-4: a second change within the clock's tick would have the same mark."""
    directory.mkdir()
    disk = PosixFileSystem()
    assert disk.change_mark(directory) is None
    os.utime(directory, (2**33, 2**33))
    assert disk.change_mark(directory) is None
    assert disk.change_mark(directory / "absent") is None


def test_old_directory_change_has_a_change_mark_until_the_next(directory: Path) -> None:
    """SRV-4: the mark stays as long as the names in the directory do."""
    directory.mkdir()
    clock = ManualClock(SystemClock().now_ms())
    disk = PosixFileSystem(clock)
    make_old(directory)
    assert disk.change_mark(directory) is None
    clock.advance(3_600_000)
    mark = disk.change_mark(directory)
    assert mark is not None
    assert mark == disk.change_mark(directory)
    (directory / "new").touch()
    assert disk.change_mark(directory) not in (None, mark)


def test_follower_of_a_preallocated_log_reads_new_bytes_only(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PAR-6: opening and polls of a file of a gibibyte read kilobytes of it."""
    read: list[int] = []
    original = PosixFileHandle.pread

    def pread(handle: PosixFileHandle, size: int, position: int) -> bytes:
        read.append(size)
        return original(handle, size, position)

    with manual_log(directory, preallocate=True, segment_bytes=1 << 30) as writer:
        writer.append([Record(value=b"first")])
        monkeypatch.setattr(PosixFileHandle, "pread", pread)
        with manual_log(directory, read_only=True) as reader:
            assert reader.recovery_report.scanned_bytes < 1 << 20
            for number in range(5):
                assert reader.log_end_offset == 1 + number
                writer.append([Record(value=b"x" * 100)])
                assert len(list(reader.records(number + 1))) == 1
            assert sum(read) < 4 << 20
            # A batch that is larger than the first window.
            writer.append([Record(value=bytes(200_000))] * 3)
            assert [record.offset for record in reader.records(6)] == [6, 7, 8]
            assert max(read) <= 8 << 20


def test_follower_reads_many_batches_at_once(directory: Path) -> None:
    """PAR-6: the bytes since the last refresh may exceed all windows."""
    with (
        manual_log(directory, preallocate=True, segment_bytes=64 << 20) as writer,
        manual_log(directory, read_only=True) as reader,
    ):
        for _ in range(30):
            writer.append([Record(value=bytes(30_000))] * 10)
        assert reader.log_end_offset == 300
        assert len(list(reader.records())) == 300


def test_new_partition_opens_read_only_as_an_empty_log(tmp_path: Path) -> None:
    """SRV-7: later appends show in the same handle."""
    with LogManager([tmp_path]) as manager:
        manager.create_topic("t")
        with open_log(tmp_path / "t-0", read_only=True) as reader:
            check_empty(reader)
            manager.log("t").append([Record(value=b"first"), Record(value=b"second")])
            assert [record.value for record in reader.records()] == [b"first", b"second"]
            assert reader.log_end_offset == 2
            assert reader.get(1) is not None


def check_empty(log: Log) -> None:
    """Assert that every read API finds nothing."""
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert list(log.records()) == list(log.batches()) == []
    assert list(log.records(isolation="read_committed")) == []
    assert log.get(0) is None
    assert len(log.read(0).data) == 0
    assert log.offset_for_timestamp(0) is None
    assert list(log.scan()) == []
    assert log.corrupt_ranges() == ()


def test_directory_without_segment_is_refused(tmp_path: Path) -> None:
    """SRV-7: without the files that a topic's creation leaves it is not a log."""
    (tmp_path / "t-0").mkdir()
    with pytest.raises(NotALogError, match="holds no segment"):
        open_log(tmp_path / "t-0", read_only=True)


class HastyFileSystem(PosixFileSystem):
    """A file system that reports files as `more` bytes longer, the first `times` times."""

    __slots__ = ("more", "times")

    def __init__(self, more: int, times: int) -> None:
        super().__init__()
        self.more = more
        self.times = times

    def extents(self, directory: Path, suffix: str) -> dict[str, FileExtent]:
        """Return the sizes from before the writer cut the files."""
        found = super().extents(directory, suffix)
        self.times -= 1
        if self.times < 0:
            return found
        return {
            name: extent._replace(size_bytes=extent.size_bytes + self.more)
            for name, extent in found.items()
        }


@pytest.mark.parametrize("clean", [True, False])
def test_read_only_open_during_a_cut_retries(directory: Path, clean: bool) -> None:
    """HOST-10: a file that is cut between the listing and the mapping is not an error."""
    with manual_log(directory) as writer:
        writer.append(numbered(0, 50))
        if clean:
            writer.close()
        disk = HastyFileSystem(10_000, 3)
        with manual_log(directory, read_only=True, filesystem=disk) as reader:
            assert reader.log_end_offset == 50
            assert len(list(reader.records())) == 50


def test_read_only_open_of_endless_cuts_raises_storage_error(directory: Path) -> None:
    """HOST-10, DUR-5: the error names the file, and is not a ValueError."""
    with manual_log(directory) as writer:
        writer.append(numbered(0, 50))
        disk = HastyFileSystem(10_000, 1000)
        with pytest.raises(LogStorageError, match="the file must have") as caught:
            manual_log(directory, read_only=True, filesystem=disk)
        assert isinstance(caught.value.__cause__, ShortFileError)
        assert str(caught.value.path).endswith(".log")


def test_file_cut_under_a_writer_raises_storage_error(directory: Path) -> None:
    """DUR-5: a sealed file that another process cut before it was read."""
    with manual_log(directory) as log:
        log.append(numbered(0, 500))
        log.roll()
        os.truncate(log.segments()[0].path, 100)
        with pytest.raises(LogStorageError, match=r"the file must have .* got 100") as caught:
            list(log.records())
        assert caught.value.path == str(log.segments()[0].path)


def test_index_ahead_of_its_reader_is_not_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """INT-4: entries of batches that the reader has not seen are ignored without a warning."""
    path = tmp_path / "00000000000000000000.index"
    entries = b"".join(
        (number * 10).to_bytes(4, "big") + (number * 4000).to_bytes(4, "big")
        for number in range(1, 9)
    )
    path.write_bytes(entries + bytes(8000))
    index: SegmentIndex[OffsetIndexView] = SegmentIndex(
        OFFSET_INDEX,
        IndexStorage(PosixFileSystem(), FilePool(PosixFileSystem()), read_only=True),
        path,
        0,
        rebuild=lambda: pytest.fail("nothing is to be rebuilt"),
        segment_size=lambda: 20_001,
    )
    with caplog.at_level(logging.INFO):
        assert len(index.view) == 5
    assert index.view.lookup(79) == (50, 20_000)
    assert caplog.records == []


def test_damaged_index_of_a_reader_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """INT-4: falling entries are damage, wherever they are."""
    path = tmp_path / "00000000000000000000.index"
    entries = [(10, 4000), (5, 8000), (30, 90_000)]
    path.write_bytes(b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries))
    index: SegmentIndex[OffsetIndexView] = SegmentIndex(
        OFFSET_INDEX,
        IndexStorage(PosixFileSystem(), FilePool(PosixFileSystem()), read_only=True),
        path,
        0,
        rebuild=lambda: b"",
        segment_size=lambda: 20_000,
    )
    assert len(index.view) == 0
    assert "is damaged" in caplog.text


def test_index_retired_during_a_look_up_is_read(tmp_path: Path) -> None:
    """Compaction releases the file between two steps of a reader of the old segment."""
    path = tmp_path / "00000000000000000000.index"
    entries = [(10, 4000), (20, 8000)]
    path.write_bytes(b"".join(o.to_bytes(4, "big") + p.to_bytes(4, "big") for o, p in entries))

    class Retiring(PosixFileSystem):
        def stat(self, path: Path) -> FileFacts | None:
            index.retire()
            return super().stat(path)

    index: SegmentIndex[OffsetIndexView] = SegmentIndex(
        OFFSET_INDEX,
        IndexStorage(Retiring(), FilePool(PosixFileSystem()), read_only=False),
        path,
        0,
        rebuild=lambda: pytest.fail("nothing is to be rebuilt"),
        segment_size=lambda: 20_000,
    )
    assert index.view.lookup(15) == (10, 4000)


@pytest.mark.skipif(
    not Path("/proc/self/maps").exists(), reason="the system does not list mappings"
)
def test_mappings_max_limits_open_mappings(directory: Path) -> None:
    """One mapping is enough to read every segment."""
    config = LogConfig(segment_bytes=600, mappings_max=1)
    with manual_log(directory, config=config) as log:
        for first in range(0, 200, 10):
            log.append(numbered(first, 10))
        assert [record.offset for record in log.records()] == list(range(200))
        mappings = Path("/proc/self/maps").read_text().splitlines()
        assert len([line for line in mappings if str(directory) in line]) <= 1


def test_stray_segment_stays_ignored_by_a_reader(directory: Path) -> None:
    """HOST-7, HOST-9: a refresh does not add a segment that the opening rejected."""
    with manual_log(directory) as writer:
        writer.append(numbered(0, 10))
        writer.roll()
        writer.append(numbered(10, 10))
    (directory / f"{5:020d}.log").write_bytes(b"junk of no batch")
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (directory / name).unlink(missing_ok=True)
    with manual_log(directory, read_only=True) as reader:
        for _ in range(2):
            assert [each.offset for each in reader.records(on_corrupt="skip")] == list(range(20))


def test_sealed_segment_that_was_cut_in_place_is_read_again(directory: Path) -> None:
    """As by a broker that truncates it, appends, and rolls before the reader looks again."""
    with manual_log(directory, segment_bytes=600) as writer:
        while len(writer.segments()) < 3:
            writer.append(numbered(writer.log_end_offset, 1))
        first, second = (segment.base_offset for segment in writer.segments()[:2])
    other = directory.with_name("other-0")
    with manual_log(other, segment_bytes=10_000) as log:
        # Longer records with the same offsets.
        log.append([Record(value=b"%d" % n * 400) for n in range(first, second)])
    path = directory / "00000000000000000000.log"
    with manual_log(directory, read_only=True) as reader:
        before = [record.value for record in reader.records()]
        with path.open("r+b") as file:
            file.truncate(0)
            file.write((other / path.name).read_bytes())
        make_old(directory)
        (directory / "changed").write_bytes(b"")
        after = [record.value for record in reader.records()]
        assert after == [b"%d" % n * 400 for n in range(first, second)] + before[second:]
