"""A read-only log during writes: it follows changes, sees no torn batch, changes nothing."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FileSystem,
    Log,
    LogStorageError,
    NotALogError,
    OffsetOutOfRangeError,
    Record,
)
from kafkalog.files.filesystem import FileHandle
from kafkalog.files.names import LEADER_EPOCH_CHECKPOINT, SegmentFiles
from kafkalog.files.posix import PosixFileSystem
from tests.support import golden
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(name="writer")
def fixture_writer(directory: Path) -> Iterator[Log]:
    """A log with small segments and 20 records, whose deleted files are unlinked at once."""
    with manual_log(
        directory, segment_bytes=600, index_interval_bytes=100, file_delete_delay_ms=0
    ) as log:
        log.append(numbered(0, 10))
        log.append(numbered(10, 10))
        yield log


@pytest.fixture(name="reader")
def fixture_reader(writer: Log, directory: Path) -> Iterator[Log]:
    """The same log, read-only."""
    with manual_log(directory, read_only=True) as log:
        yield log


def check_same(writer: Log, reader: Log) -> None:
    """Assert that both have the same log, for every read API."""
    assert (writer.log_start_offset, writer.log_end_offset) == (
        reader.log_start_offset,
        reader.log_end_offset,
    )
    records = list(writer.records())
    assert records == list(reader.records())
    for record in records[::7]:
        found = writer.offset_for_timestamp(record.timestamp_ms)
        assert found == reader.offset_for_timestamp(record.timestamp_ms)
        assert bytes(writer.read(record.offset).data) == bytes(reader.read(record.offset).data)
    assert [s.base_offset for s in writer.segments()] == [s.base_offset for s in reader.segments()]
    # Offsets that a truncation cut within a batch are missing; a follower cannot know the reason.
    assert not [
        corrupt_range for corrupt_range in reader.corrupt_ranges() if corrupt_range.size_bytes
    ]


def test_reader_follows_appends_and_rolls(writer: Log, reader: Log) -> None:
    """Each append is seen by the next refresh, through many segments."""
    for first in range(20, 400, 10):
        writer.append(numbered(first, 10))
        assert first + 10 == reader.log_end_offset
    assert len(writer.segments()) > 10
    check_same(writer, reader)


def test_late_refresh_sees_all_new_segments(writer: Log, reader: Log) -> None:
    """After several rolls: the segment that it followed and the later ones."""
    for first in range(20, 400, 10):
        writer.append(numbered(first, 10))
    check_same(writer, reader)


def test_reader_follows_deleted_records(writer: Log, reader: Log) -> None:
    """The log start moves within a segment at once, and with whole segments."""
    for first in range(20, 200, 10):
        writer.append(numbered(first, 10))
    check_same(writer, reader)
    writer.delete_records(3)
    check_same(writer, reader)
    with pytest.raises(OffsetOutOfRangeError):
        reader.read(2)
    writer.delete_records(155)
    writer.append(numbered(200, 3))
    check_same(writer, reader)
    with pytest.raises(OffsetOutOfRangeError, match="155 to 203"):
        reader.read(154)


@pytest.mark.parametrize("target", [0, 5, 10, 15, 100, 195, 199])
def test_reader_follows_a_truncation(writer: Log, reader: Log, target: int) -> None:
    """In the last segment, in an earlier one, and to the very start; then an append."""
    for first in range(20, 200, 10):
        writer.append(numbered(first, 10))
    check_same(writer, reader)
    writer.truncate_to(target)
    check_same(writer, reader)
    writer.append([Record(value=b"instead", timestamp_ms=START_MS + 1)])
    check_same(writer, reader)


def test_late_refresh_after_truncation_shows_no_old_bytes(writer: Log, reader: Log) -> None:
    """The log was cut and grew beyond its old end between two refreshes."""
    assert 20 == reader.log_end_offset
    writer.truncate_to(10)
    for first in range(10, 60, 10):
        writer.append([Record(value=b"other%d" % n) for n in range(first, first + 10)])
    check_same(writer, reader)


def test_reader_follows_many_truncations_of_one_segment(writer: Log, reader: Log) -> None:
    """Names and even inode numbers repeat; the bytes differ each time."""
    for generation in range(12):
        writer.truncate_to(10)
        writer.append([Record(value=b"%d" % generation * 5) for _number in range(generation % 4)])
        if generation % 2:
            check_same(writer, reader)
    check_same(writer, reader)


@pytest.mark.parametrize("start", [0, 5, 50])
def test_reader_follows_a_full_truncation(writer: Log, reader: Log, start: int) -> None:
    """All records are removed, and the log begins below or above its old range."""
    assert 20 == reader.log_end_offset
    writer.delete_records(12)
    assert 12 == reader.log_start_offset
    writer.truncate_fully_and_start_at(start)
    writer.append(numbered(0, 30))
    check_same(writer, reader)


def test_reader_follows_a_writer_that_closes_and_reopens(
    writer: Log, reader: Log, directory: Path
) -> None:
    """Indexes are trimmed and preallocated, the marker is written and removed."""
    writer.close()
    assert 20 == reader.log_end_offset
    with manual_log(directory) as again:
        again.append(numbered(20, 5))
        check_same(again, reader)
    assert 25 == len(list(reader.records()))


def test_reader_sees_no_torn_batch(writer: Log, reader: Log, directory: Path) -> None:
    """A batch is seen once its last byte is written; this test writes a byte at a time."""
    batch = (20).to_bytes(8, "big") + bytes(next(writer.batches()).data)[8:]
    path = writer.segments()[-1].path
    assert 20 > writer.segments()[-1].base_offset
    with path.open("ab", buffering=0) as file:
        for position in range(len(batch)):
            assert 20 == reader.log_end_offset
            assert 20 == len(list(reader.records()))
            file.write(batch[position : position + 1])
    assert 30 == reader.log_end_offset
    assert 30 == len(list(reader.records()))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - len(batch))


def test_reader_follows_the_leader_epochs_of_its_writer(directory: Path) -> None:
    """New epochs and a truncation; without the checkpoint the epochs come from the batches."""
    with manual_log(directory) as writer, manual_log(directory, read_only=True) as reader:

        def check() -> None:
            for epoch in range(5):
                expected = writer.end_offset_for_epoch(epoch)
                assert expected == reader.end_offset_for_epoch(epoch)
            for moment in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP):
                expected_offset = writer.offset_for_timestamp(moment)
                assert expected_offset == reader.offset_for_timestamp(moment)

        for first in (0, 10, 20):
            writer.append(numbered(first, 10))
            check()
            # The truncation raises the epoch of the next append.
            writer.truncate_to(first + 9)
            writer.append(numbered(first + 9, 1))
            check()
        assert 3 == writer.leader_epoch
        writer.truncate_to(5)
        check()
        (directory / LEADER_EPOCH_CHECKPOINT).unlink()
        assert (0, 5) == reader.end_offset_for_epoch(0)


def test_reader_ends_at_preallocated_zeros(directory: Path) -> None:
    """A file longer than its log: while it grows, when it rolls, and when it is cut."""
    with (
        manual_log(directory, preallocate=True, segment_bytes=2000) as writer,
        manual_log(directory, read_only=True) as reader,
    ):
        for first in range(0, 300, 10):
            writer.append(numbered(first, 10))
            assert first + 10 == reader.log_end_offset
        assert len(writer.segments()) > 3
        check_same(writer, reader)
        with manual_log(directory, read_only=True) as late:
            check_same(writer, late)


def test_reader_ignores_zeros_of_an_untrimmed_sealed_file(
    writer: Log, reader: Log, directory: Path
) -> None:
    """Between a roll and the cut of its tail a sealed file has zeros."""
    writer.append(numbered(20, 10))
    writer.roll()
    sealed = SegmentFiles(directory, writer.segments()[-2].base_offset).log
    size = sealed.stat().st_size
    with sealed.open("r+b") as file:
        file.truncate(size + 5000)
    assert list(range(30)) == [record.offset for record in reader.records()]
    assert () == reader.corrupt_ranges()
    with sealed.open("r+b") as file:
        file.truncate(size)
    check_same(writer, reader)


def test_reader_changes_no_file(writer: Log, directory: Path) -> None:
    """Neither bytes nor names, with an open writer and after its close."""
    for _time in range(2):
        with golden.unchanged(directory), manual_log(directory, read_only=True) as reader:
            assert 20 == len(list(reader.records()))
            assert reader.offset_for_timestamp(START_MS + 3) is not None
        writer.close()


@pytest.mark.parametrize("kind", ["offset_index", "time_index"])
def test_reader_without_index_file_rebuilds_it_in_memory(
    directory: Path, writer: Log, kind: str
) -> None:
    """The file is still missing afterwards."""
    for first in range(20, 100, 10):
        writer.append(numbered(first, 10))
    writer.close()
    path = getattr(SegmentFiles(directory, 0), kind)
    path.unlink()
    with golden.unchanged(directory), manual_log(directory, read_only=True) as reader:
        assert list(range(100)) == [record.offset for record in reader.records()]
        assert reader.read(7).first_offset == 0
        assert reader.offset_for_timestamp(START_MS + 7) is not None


def test_read_only_open_without_log_is_refused(directory: Path) -> None:
    """A missing or empty directory is an error, and nothing is created."""
    with pytest.raises(NotALogError, match="No log found"):
        manual_log(directory, read_only=True)
    directory.mkdir()
    with pytest.raises(NotALogError, match="No log found"):
        manual_log(directory, read_only=True)
    assert [] == list(directory.iterdir())


def test_iterator_over_deleted_files_raises_with_the_range(writer: Log, reader: Log) -> None:
    """It reads the files that it has open; the error has the remaining offsets."""
    for first in range(20, 200, 10):
        writer.append(numbered(first, 10))
    records = reader.records()
    seen = [next(records).offset]
    writer.delete_records(150)
    writer.close()
    with pytest.raises(OffsetOutOfRangeError, match="150 to 200"):
        seen.extend(record.offset for record in records)
    assert list(range(len(seen))) == seen


def test_iterator_over_cut_files_ends_or_raises(writer: Log, reader: Log) -> None:
    """No cut record is returned with another content."""
    for first in range(20, 200, 10):
        writer.append(numbered(first, 10))
    records = reader.records()
    seen = list(itertools.islice(records, 3))
    writer.truncate_to(50)
    writer.append([Record(value=b"other")])
    writer.close()
    try:
        seen.extend(records)
    except OffsetOutOfRangeError as error:
        assert 51 == error.log_end_offset
    for number, record in enumerate(seen):
        assert number == record.offset
        assert record.value in (b"v%d" % number, b"other" if number == 50 else b"v%d" % number)


class VanishingFiles(PosixFileSystem):
    """A file system that calls `then` once, just before the n-th opening of a `.log` file."""

    def __init__(self) -> None:
        super().__init__()
        self.countdown = -1
        self.then = self.nothing

    def nothing(self) -> None:
        """Do nothing."""

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        if path.suffix == ".log":
            self.countdown -= 1
            if self.countdown == 0:
                self.then()
        return super().open(path, create=create, write=write)


@pytest.mark.parametrize("number", range(1, 6))
def test_refresh_retries_if_a_segment_disappears(writer: Log, directory: Path, number: int) -> None:
    """Files may change between the listing of the directory and the opening of a file."""
    files = VanishingFiles()
    filesystem: FileSystem = files
    with manual_log(directory, read_only=True, filesystem=filesystem) as reader:
        for first in range(20, 200, 10):
            writer.append(numbered(first, 10))

        def change() -> None:
            writer.delete_records(120)
            writer.truncate_to(180)
            writer.append([Record(value=b"other")])

        files.countdown, files.then = number, change
        _end = reader.log_end_offset
        check_same(writer, reader)


class AbsentFiles(PosixFileSystem):
    """A file system without `.log` files for the next `listings` listings of the directory."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0

    def list(self, directory: Path) -> list[str]:
        names = super().list(directory)
        if self.listings == 0:
            return names
        self.listings -= 1
        return [name for name in names if not name.endswith(".log")]

    def open(self, path: Path, *, create: bool = False, write: bool = False) -> FileHandle:
        if path.suffix == ".log" and self.listings:
            raise FileNotFoundError(2, "between two steps of a truncation", str(path))
        return super().open(path, create=create, write=write)


def test_iterator_waits_while_a_truncation_leaves_no_file(writer: Log, directory: Path) -> None:
    """A missing file, or a directory without files, is not an error for a short time."""
    for first in range(20, 200, 10):
        writer.append(numbered(first, 10))
    files = AbsentFiles()
    with manual_log(
        directory, read_only=True, filesystem=files, open_files_max=4, mappings_max=4
    ) as reader:
        records = reader.records()
        seen = [next(records).offset]
        files.listings = 3
        seen.extend(record.offset for record in records)
    assert list(range(200)) == seen
    assert 0 == files.listings


def test_iterator_over_missing_files_raises_after_retries(writer: Log, directory: Path) -> None:
    """The error names the missing file."""
    for first in range(20, 200, 10):
        writer.append(numbered(first, 10))
    files = AbsentFiles()
    with manual_log(
        directory, read_only=True, filesystem=files, open_files_max=4, mappings_max=4
    ) as reader:
        records = reader.records()
        next(records)
        files.listings = 10**6
        with pytest.raises(LogStorageError, match="between two steps"):
            list(records)
        files.listings = 0


def test_reader_in_another_process_sees_the_same_log(writer: Log, directory: Path) -> None:
    """The second process reads without the lock that the writer has."""
    program = (
        "import sys, kafkalog\n"
        "with kafkalog.open_log(sys.argv[1], read_only=True) as log:\n"
        "    print(log.log_start_offset, log.log_end_offset,\n"
        "          b''.join(record.value for record in log.records()).decode())\n"
    )
    for _process in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program, str(directory)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        values = "".join(f"v{number}" for number in range(20))
        assert f"0 20 {values}\n" == done.stdout
