"""One writer, several readers in threads and another process: no reader sees records never written.

The writer takes a fixed number of steps (append, roll, truncate, delete, flush); readers run on
until it has done. Each record has its offset and which append wrote it, so a reader can check
whatever it gets against what was written at that offset, ever. Nothing waits for a clock.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import pytest

from kafkalog import Log, LogConfig, OffsetOutOfRangeError, Record, ThreadScheduler, open_log
from tests.support.manual_time import START_MS

ROOT = Path(__file__).resolve().parents[2]
STEPS = 200
READERS = 4
WAIT_SECONDS = 60

CONFIG = LogConfig(
    segment_bytes=4000,
    index_interval_bytes=200,
    file_delete_delay_ms=0,
    mappings_max=4,
    open_files_max=4,
    batch_bytes=300,
    message_timestamp_after_max_ms=2**63 - 1,
)


class Book:
    """Values ever written at each offset. A value is entered before it is appended."""

    def __init__(self) -> None:
        self.values: dict[int, set[bytes]] = defaultdict(set)
        # Offsets below a truncation that went with the batch that straddled it.
        self.cut: set[int] = set()
        self.checked = 0

    def check_corrupt_ranges(self, corrupt_ranges: Iterable[tuple[int, int, int]]) -> None:
        """Assert that ranges (first, next, bytes) are of no bytes, and were cut on purpose."""
        for first, following, size_bytes in corrupt_ranges:
            assert 0 == size_bytes
            assert set(range(first, following)) <= self.cut, (first, following)

    def check(self, record: Record) -> None:
        """Assert that this record was written, at this offset and with this time."""
        assert record.value is not None
        assert record.value in self.values[record.offset], record
        assert b"%d" % record.offset == record.key
        assert START_MS + record.offset == record.timestamp_ms
        self.checked += 1


class Writer:
    """Takes steps that a seed decides."""

    def __init__(self, log: Log, book: Book, seed: int) -> None:
        self._log = log
        self._book = book
        self._random = random.Random(seed)
        self._serial = 0

    def append(self) -> None:
        """Append up to 40 records in batches of a few."""
        first, count = self._log.log_end_offset, self._random.randint(1, 40)
        records = []
        for offset in range(first, first + count):
            self._serial += 1
            value = b"%d " % self._serial + bytes(self._random.randint(0, 60))
            self._book.values[offset].add(value)
            key = b"%d" % offset
            records.append(Record(key=key, value=value, timestamp_ms=START_MS + offset))
        wait = self._random.choice(["written"] * 9 + ["durable"])
        assert first == self._log.append(records, wait=wait).first_offset  # type: ignore[arg-type]

    def truncate(self, offset: int) -> None:
        """Cut the log; note what goes below the offset, since a batch goes as a whole."""
        for batch in self._log.batches(offset, offset + 1):
            self._book.cut.update(range(batch.header.base_offset, offset))
        self._log.truncate_to(offset)

    def step(self) -> None:
        """Append, or now and then change the log otherwise."""
        chance = self._random.random()
        start, end = self._log.log_start_offset, self._log.log_end_offset
        if chance < 0.80:
            self.append()
        elif chance < 0.85:
            self._log.roll()
        elif chance < 0.92:
            self.truncate(self._random.randint(max(start, end - 300), end))
        elif chance < 0.98:
            self._log.delete_records(max(start, end - self._random.randint(0, 1500)))
        else:
            self._log.flush()


def read_records(log: Log, book: Book, chooser: random.Random) -> None:
    """Iterate from somewhere: offsets rise without a hole but where a truncation left one."""
    start = chooser.randint(log.log_start_offset, log.log_end_offset)
    before = start - 1
    for count, record in enumerate(log.records(start)):
        assert record.offset > before
        before = record.offset
        book.check(record)
        if count > 500:
            break


def read_slices(log: Log, book: Book, chooser: random.Random) -> None:
    """Fetch from offset to offset, in sizes that cut batches."""
    offset = chooser.randint(log.log_start_offset, log.log_end_offset)
    for _time in range(10):
        fetched = log.read(offset, max_bytes=chooser.randint(0, 6000))
        for record in fetched.records():
            assert record.offset >= offset
            book.check(record)
        if fetched.next_offset == offset:
            break
        offset = fetched.next_offset


def look_up_times(log: Log, book: Book, chooser: random.Random) -> None:
    """A time is an offset here: the answer is that record or a later one."""
    for _time in range(10):
        target_ms = START_MS + chooser.randint(log.log_start_offset, log.log_end_offset)
        found = log.offset_for_timestamp(target_ms)
        if found is not None:
            assert found.timestamp_ms >= target_ms
            assert START_MS + found.offset == found.timestamp_ms
            assert book.values[found.offset]


def keep_slices(log: Log, book: Book, chooser: random.Random) -> None:
    """Bytes taken now are read after the log went on."""
    taken = [log.read(chooser.randint(log.log_start_offset, log.log_end_offset)) for _ in range(3)]
    copies = [bytes(fetched.data) for fetched in taken]
    read_records(log, book, chooser)
    assert copies == [bytes(fetched.data) for fetched in taken]


READINGS = (read_records, read_slices, look_up_times, keep_slices)


class Readers:
    """Threads that read until they are stopped, and what went wrong in them."""

    def __init__(self, log: Log, book: Book) -> None:
        self.ended = threading.Event()
        self.errors: list[BaseException] = []
        self.rounds = [0] * READERS
        self._threads = [
            threading.Thread(target=self._work, args=(log, book, number))
            for number in range(READERS)
        ]

    def _work(self, log: Log, book: Book, number: int) -> None:
        chooser = random.Random(number)
        reading: Callable[[Log, Book, random.Random], None] = READINGS[number % len(READINGS)]
        try:
            while not self.ended.is_set() or not self.rounds[number]:
                try:
                    reading(log, book, chooser)
                except OffsetOutOfRangeError as error:
                    # Legal: the start moved up, or the end down, between two looks.
                    assert error.requested is not None
                except ValueError as error:
                    # `randint` of a range whose start was read before the end was lowered.
                    assert "empty range" in str(error)
                self.rounds[number] += 1
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            self.errors.append(error)
            self.ended.set()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.ended.set()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()


def raise_first(errors: list[BaseException]) -> None:
    """Raise the errors of the threads."""
    if errors:
        raise errors[0]


@pytest.mark.parametrize("seed", [1, 2])
def test_readers_of_the_writer_see_only_written_records(tmp_path: Path, seed: int) -> None:
    """Threads read the log of the writer without a lock, during every kind of change."""
    book = Book()
    scheduler = ThreadScheduler()
    with open_log(tmp_path / "orders-0", config=CONFIG, scheduler=scheduler) as log:
        writer = Writer(log, book, seed)
        writer.append()
        with Readers(log, book) as readers:
            for _step in range(STEPS):
                writer.step()
                if readers.ended.is_set():
                    break
        raise_first(readers.errors)
        assert min(readers.rounds) > 0
        assert book.checked > 100
        expected = [record.value for record in log.records()]
        assert () == log.corrupt_ranges()
    scheduler.close()
    with open_log(tmp_path / "orders-0", config=CONFIG) as log:
        assert expected == [record.value for record in log.records()]
        # Nothing on the disk distinguishes them from records that were lost.
        book.check_corrupt_ranges(
            (corrupt_range.first_offset, corrupt_range.next_offset, corrupt_range.size_bytes)
            for corrupt_range in log.corrupt_ranges()
        )


def test_read_only_log_readers_see_only_written_records(tmp_path: Path) -> None:
    """Threads that share one read-only log, which follows a writer of the same process."""
    book = Book()
    with open_log(tmp_path / "orders-0", config=CONFIG) as log:
        writer = Writer(log, book, 3)
        writer.append()
        with (
            open_log(tmp_path / "orders-0", config=CONFIG, read_only=True) as follower,
            Readers(follower, book) as readers,
        ):
            for _step in range(STEPS // 2):
                writer.step()
                if readers.ended.is_set():
                    break
        raise_first(readers.errors)
        assert min(readers.rounds) > 0
        assert book.checked > 100


# The other process reads all it can, round after round, until its input ends: then once more.
FOLLOWER = """
import sys, threading
import kafkalog
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
rounds = count = 0
corrupt_ranges = set()
with kafkalog.open_log(sys.argv[1], read_only=True) as log:
    print("ready", flush=True)
    while True:
        last_round = ended.is_set()
        before = -1
        try:
            for record in log.records():
                assert record.offset > before
                before = record.offset
                assert record.key == b"%d" % record.offset
                assert record.timestamp_ms == 1_700_000_000_000 + record.offset
                assert record.value.split(b" ")[0].isdigit()
                count += 1
        except kafkalog.OffsetOutOfRangeError:
            assert not last_round
        corrupt_ranges.update(
            (f.first_offset, f.next_offset, f.size_bytes) for f in log.corrupt_ranges()
        )
        rounds += 1
        if last_round:
            break
    ends = (log.log_start_offset, log.log_end_offset)
    print(rounds, count, *ends, *(n for f in corrupt_ranges for n in f))
"""


def test_follower_process_sees_only_written_records(tmp_path: Path) -> None:
    """It ends with the very log that the writer has; until then only the range may be missed."""
    book = Book()
    with open_log(tmp_path / "orders-0", config=CONFIG) as log:
        writer = Writer(log, book, 4)
        writer.append()
        with subprocess.Popen(
            [sys.executable, "-c", FOLLOWER, str(tmp_path / "orders-0")],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as follower:
            assert follower.stdout is not None
            assert "ready\n" == follower.stdout.readline()
            for _step in range(STEPS):
                writer.step()
            output, complaints = follower.communicate(timeout=WAIT_SECONDS)
        assert 0 == follower.returncode, complaints
        rounds, count, start, end, *fields = map(int, output.split())
        book.check_corrupt_ranges(zip(fields[::3], fields[1::3], fields[2::3], strict=True))
        assert (log.log_start_offset, log.log_end_offset) == (start, end)
        assert rounds >= 1
        assert count >= len(list(log.records()))
