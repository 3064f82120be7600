"""A read-only log beside its writer: follows every change, sees no torn batch, changes nothing."""

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
    """A log with small segments, 20 records in it, whose deleted files go at once."""
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
    """Assert that both see the same log, in every way of looking."""
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
    # What a truncation within a batch took with it is missing; who follows cannot tell why.
    assert not [
        corrupt_range for corrupt_range in reader.corrupt_ranges() if corrupt_range.size_bytes
    ]


def test_reader_follows_appends_and_rolls(writer: Log, reader: Log) -> None:
    """Each append shows with the next look, through many segments."""
    for first in range(20, 400, 10):
        writer.append(numbered(first, 10))
        assert first + 10 == reader.log_end_offset
    assert len(writer.segments()) > 10
    check_same(writer, reader)


def test_reader_that_looks_late_sees_everything(writer: Log, reader: Log) -> None:
    """Several rolls between two looks: the segment it followed and those behind it."""
    for first in range(20, 400, 10):
        writer.append(numbered(first, 10))
    check_same(writer, reader)


def test_reader_follows_the_deletion_of_records(writer: Log, reader: Log) -> None:
    """The start moves within a segment at once, and with whole segments."""
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
def test_reader_follows_truncation(writer: Log, reader: Log, target: int) -> None:
    """Into the last segment, an earlier one, to the very start; and what is appended instead."""
    for first in range(20, 200, 10):
        writer.append(numbered(first, 10))
    check_same(writer, reader)
    writer.truncate_to(target)
    check_same(writer, reader)
    writer.append([Record(value=b"instead", timestamp_ms=START_MS + 1)])
    check_same(writer, reader)


def test_reader_that_looks_late_sees_what_came_after_a_truncation(writer: Log, reader: Log) -> None:
    """Cut and grown beyond the old end between two looks: nothing of the old bytes shows."""
    assert 20 == reader.log_end_offset
    writer.truncate_to(10)
    for first in range(10, 60, 10):
        writer.append([Record(value=b"other%d" % n) for n in range(first, first + 10)])
    check_same(writer, reader)


def test_reader_follows_many_truncations_of_one_segment(writer: Log, reader: Log) -> None:
    """Names and even inode numbers come again; the bytes are others each time."""
    for generation in range(12):
        writer.truncate_to(10)
        writer.append([Record(value=b"%d" % generation * 5) for _number in range(generation % 4)])
        if generation % 2:
            check_same(writer, reader)
    check_same(writer, reader)


@pytest.mark.parametrize("start", [0, 5, 50])
def test_reader_follows_a_fresh_start(writer: Log, reader: Log, start: int) -> None:
    """All goes, and the log begins elsewhere, below or above where it was."""
    assert 20 == reader.log_end_offset
    writer.delete_records(12)
    assert 12 == reader.log_start_offset
    writer.truncate_fully_and_start_at(start)
    writer.append(numbered(0, 30))
    check_same(writer, reader)


def test_reader_follows_a_writer_that_closes_and_comes_again(
    writer: Log, reader: Log, directory: Path
) -> None:
    """Indexes are trimmed and preallocated under it, the marker goes and comes."""
    writer.close()
    assert 20 == reader.log_end_offset
    with manual_log(directory) as again:
        again.append(numbered(20, 5))
        check_same(again, reader)
    assert 25 == len(list(reader.records()))


def test_reader_sees_no_torn_batch(writer: Log, reader: Log, directory: Path) -> None:
    """A batch is seen when its last byte is there: written by hand, a byte at a time."""
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
    """New ones, a truncation, and an old format that forgets them; a copy has what batches tell."""
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
            # The next append is of the next epoch.
            writer.truncate_to(first + 9)
            writer.append(numbered(first + 9, 1))
            check()
        assert 3 == writer.leader_epoch
        writer.truncate_to(5)
        check()
        (directory / LEADER_EPOCH_CHECKPOINT).unlink()
        assert (0, 5) == reader.end_offset_for_epoch(0)


def test_reader_takes_preallocated_zeros_for_the_end(directory: Path) -> None:
    """A file that is longer than its log: while it grows, when it rolls, and when it is cut."""
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


def test_reader_sees_zeros_of_a_sealed_file_that_was_not_trimmed_yet(
    writer: Log, reader: Log, directory: Path
) -> None:
    """Between a roll and the cut of the tail the sealed file still has its zeros."""
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


def test_reader_changes_nothing(writer: Log, directory: Path) -> None:
    """Not a byte, not a name, neither beside a writer nor when it has gone."""
    for _time in range(2):
        with golden.unchanged(directory), manual_log(directory, read_only=True) as reader:
            assert 20 == len(list(reader.records()))
            assert reader.offset_for_timestamp(START_MS + 3) is not None
        writer.close()


@pytest.mark.parametrize("kind", ["offset_index", "time_index"])
def test_reader_of_a_log_without_indexes_reads_from_memory(
    directory: Path, writer: Log, kind: str
) -> None:
    """A missing index is rebuilt, and the file still is not there afterwards."""
    for first in range(20, 100, 10):
        writer.append(numbered(first, 10))
    writer.close()
    path = getattr(SegmentFiles(directory, 0), kind)
    path.unlink()
    with golden.unchanged(directory), manual_log(directory, read_only=True) as reader:
        assert list(range(100)) == [record.offset for record in reader.records()]
        assert reader.read(7).first_offset == 0
        assert reader.offset_for_timestamp(START_MS + 7) is not None


def test_reader_needs_a_log(directory: Path) -> None:
    """Read-only nothing is created: a missing or empty directory is an error."""
    with pytest.raises(NotALogError, match="No log found"):
        manual_log(directory, read_only=True)
    directory.mkdir()
    with pytest.raises(NotALogError, match="No log found"):
        manual_log(directory, read_only=True)
    assert [] == list(directory.iterdir())


def test_iterator_over_files_that_went_names_the_range(writer: Log, reader: Log) -> None:
    """What it holds it reads; then the offset has gone, and the error says what is left."""
    for first in range(20, 200, 10):
        writer.append(numbered(first, 10))
    records = reader.records()
    seen = [next(records).offset]
    writer.delete_records(150)
    writer.close()
    with pytest.raises(OffsetOutOfRangeError, match="150 to 200"):
        seen.extend(record.offset for record in records)
    assert list(range(len(seen))) == seen


def test_iterator_over_files_that_were_cut_ends_or_names_the_range(
    writer: Log, reader: Log
) -> None:
    """No record of the cut part comes with another content than it had."""
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
    """Runs `then` once, just before the n-th opening of a `.log` file."""

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
def test_reader_looks_again_when_a_segment_goes_while_it_looks(
    writer: Log, directory: Path, number: int
) -> None:
    """Between the listing of the directory and the opening of a file anything may happen."""
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
    """Shows no `.log` file, for as many listings of the directory as `listings` says."""

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


def test_iterator_waits_while_a_truncation_has_left_no_file(writer: Log, directory: Path) -> None:
    """A file that is missed, and a directory without any, is no error as long as it passes."""
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


def test_iterator_over_files_that_went_for_good_names_them(writer: Log, directory: Path) -> None:
    """It looks again for a while, and then says what it missed."""
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


def test_reader_in_another_process_sees_the_same(writer: Log, directory: Path) -> None:
    """While the writer holds the lock, a second process reads without it."""
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
