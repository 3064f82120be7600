"""`Log.appender`: single records, written together, none lost and none twice."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalog import (
    AppendInfo,
    DiskFullError,
    InvalidRecordError,
    Log,
    LogClosedError,
    LogConfig,
    Record,
    RecordTooLargeError,
    RecordValidationError,
    UnsupportedForMessageFormatError,
)
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS, ManualClock, ManualScheduler
from tests.support.old_appends import RELEASES
from tests.support.simulated_disk import SimulatedDisk


@pytest.fixture(name="directory")
def fixture_directory(tmp_path: Path) -> Path:
    """A partition directory that does not exist yet."""
    return tmp_path / "orders-0"


def values(log: Log) -> list[bytes | None]:
    """Return the values of all records."""
    return [record.value for record in log.records()]


def small(directory: Path, **settings: Any) -> Log:
    """Return a log with batches of 200 bytes."""
    return manual_log(directory, batch_bytes=200, **settings)


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("compression", ["uncompressed", "gzip"])
def test_appender_writes_the_log_of_append(magic: int, compression: str, tmp_path: Path) -> None:
    """Byte for byte, in every format."""
    settings = {"compression_type": compression, "message_format_version": RELEASES[magic]}
    headers = [("h", b"x"), ("n", None)] if magic == 2 else []
    rows = [
        Record(key=b"%d" % n if n % 3 else None, value=b"v" * n, timestamp_ms=n, headers=headers)
        for n in range(60)
    ]
    with small(tmp_path / "a-0", **settings) as log:
        log.append(rows)
    with small(tmp_path / "b-0", **settings) as log, log.appender() as appender:
        for row in rows:
            appender.append(row.key, row.value, row.timestamp_ms, iter(row.headers))
        assert (60, "60 records wait") == (appender.pending_count, repr(appender)[16:-1])
        info = appender.flush()
        assert info is not None
        assert (0, 59, 60) == (info.first_offset, info.last_offset, info.record_count)
        assert appender.flush() is None
    name = "00000000000000000000.log"
    assert (tmp_path / "a-0" / name).read_bytes() == (tmp_path / "b-0" / name).read_bytes()


def test_appender_writes_when_the_buffer_is_full(directory: Path) -> None:
    """Whole batches, before a record would exceed the buffer; `on_append` gets each info."""
    infos: list[AppendInfo] = []
    with small(directory) as log:
        with log.appender(buffer_bytes=500, on_append=infos.append) as appender:
            for number in range(100):
                appender.append(None, b"%d" % number)
                assert appender.pending_count + log.log_end_offset == number + 1
        assert [b"%d" % number for number in range(100)] == values(log)
        assert appender.is_closed
        assert 0 == appender.pending_count
    assert len(infos) > 2
    assert all(300 < info.size_bytes <= 500 for info in infos[:-1])
    assert [info.last_offset + 1 for info in infos[:-1]] == [
        info.first_offset for info in infos[1:]
    ]


def test_appender_with_small_buffer_writes_partial_batches(directory: Path) -> None:
    """The buffer limits the records that a crash can lose, whatever the batch size."""
    infos: list[AppendInfo] = []
    with manual_log(directory, batch_bytes=64 << 10) as log:
        with log.appender(buffer_bytes=500, on_append=infos.append) as appender:
            for number in range(100):
                appender.append(None, b"%d" % number)
            appender.append(None, b"v" * 1000)
        assert [*(b"%d" % number for number in range(100)), b"v" * 1000] == values(log)
        with pytest.raises(ValueError, match="buffer_bytes must be at least 1, got 0"):
            log.appender(buffer_bytes=0)
    assert len(infos) > 2
    assert all(400 < info.size_bytes <= 500 for info in infos[:-2])


def test_appender_lingers_for_linger_ms_only(directory: Path) -> None:
    """The first waiting record starts the time; an early write ends it."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    with manual_log(directory, clock=clock, scheduler=scheduler) as log:
        appender = log.appender(linger_ms=10)
        appender.append(b"a", b"1")
        scheduler.advance(9)
        appender.append(b"b", b"2")
        assert 0 == log.log_end_offset
        scheduler.advance(1)
        assert 2 == log.log_end_offset
        scheduler.advance(100)
        appender.append(b"c", b"3")
        appender.flush()
        appender.append(b"d", b"4")
        scheduler.advance(9)
        assert 3 == log.log_end_offset
        scheduler.advance(1)
        assert 4 == log.log_end_offset
        times = [START_MS, START_MS + 9, START_MS + 110, START_MS + 110]
        assert times == [record.timestamp_ms for record in log.records()]


def test_appender_wait_durable_syncs(directory: Path) -> None:
    """For all writes, or for one flush."""
    with small(directory) as log:
        with log.appender() as appender:
            appender.append(b"k", b"v")
            appender.flush(wait="durable")
            assert 1 == log.durable_offset
        with log.appender(wait="durable", buffer_bytes=200) as appender:
            for _ in range(40):
                appender.append(b"k", b"v")
            assert log.durable_offset == log.log_end_offset > 1
        assert 41 == log.durable_offset


def test_appender_refuses_a_record_and_keeps_the_others(directory: Path) -> None:
    """A record that could never be written is refused; earlier and later ones are written."""
    with manual_log(
        directory,
        cleanup_policy=("compact",),
        batch_bytes=150,
        max_message_bytes=300,
        message_timestamp_after_max_ms=1000,
    ) as log:
        appender = log.appender()
        appender.append(b"a", b"1")
        with pytest.raises(RecordValidationError, match="key"):
            appender.append(None, b"x")
        with pytest.raises(RecordValidationError):
            appender.append(b"x", b"x", START_MS + 5000)
        with pytest.raises(RecordTooLargeError):
            appender.append(b"x", bytes(400))
        with pytest.raises(InvalidRecordError):
            appender.append(b"x", b"x", -2)
        with pytest.raises(TypeError):
            appender.append("x", b"x")  # type: ignore[arg-type]
        appender.append(b"b", bytes(180))
        appender.append(b"c", b"3")
        appender.close()
        assert [b"a", b"b", b"c"] == [record.key for record in log.records()]
        for call in (appender.flush, lambda: appender.append(b"d", b"4")):
            with pytest.raises(LogClosedError, match="appender"):
                call()
        appender.close()


def test_appender_checks_a_record_when_it_is_appended(directory: Path) -> None:
    """Not again when it is written, and the clock has advanced."""
    clock = ManualClock()
    with small(directory, clock=clock, message_timestamp_before_max_ms=100) as log:
        appender = log.appender()
        appender.append(b"a", b"1", START_MS - 90)
        clock.advance(50)
        appender.close()
        assert 1 == log.log_end_offset


def test_appender_headers_in_old_format_are_refused(directory: Path) -> None:
    """As in `append`."""
    with manual_log(directory, message_format_version="0.10.2") as log, log.appender() as appender:
        with pytest.raises(UnsupportedForMessageFormatError):
            appender.append(b"a", b"1", headers=[("a", b"b")])
        appender.append(b"a", b"1")


def test_appender_log_append_time_is_that_of_the_write(directory: Path) -> None:
    """That of the first record in each write: an appender may wait for hours between two writes."""
    clock = ManualClock()
    settings = {"message_timestamp_type": "LogAppendTime"}
    with small(directory, clock=clock, **settings) as log, log.appender() as appender:
        for _ in range(3):
            clock.advance(1000)
            appender.append(b"a", b"1", 7)
            appender.flush()
        times = [START_MS + 1000, START_MS + 2000, START_MS + 3000]
        assert times == [record.timestamp_ms for record in log.records()]


def test_appender_uses_new_settings_for_the_next_run(directory: Path) -> None:
    """Waiting records keep the batch size of their run."""
    config = LogConfig(batch_bytes=200, message_timestamp_after_max_ms=2**63 - 1)
    with manual_log(directory, config=config) as log, log.appender() as appender:
        for size in (200, 5000):
            log.reconfigure(config.replace(batch_bytes=size))
            for _ in range(20):
                appender.append(b"k", bytes(20))
            info = appender.flush()
            assert info is not None
            assert (info.batch_count == 1) == (size == 5000)


def test_appender_full_disk_keeps_waiting_records() -> None:
    """No record is lost or written twice; a refused one is not kept, and memory is limited."""
    disk = SimulatedDisk(capacity_bytes=1 << 20)
    with manual_log(
        Path("/orders-0"), filesystem=disk, batch_bytes=2000, segment_index_bytes=4096
    ) as log:
        appender = log.appender(buffer_bytes=10_000, linger_ms=5)
        taken: list[bytes] = []
        refused = 0
        while refused < 3:
            value = b"%d " % len(taken) * 200
            try:
                appender.append(None, value)
                taken.append(value)
            except DiskFullError:
                refused += 1
        assert taken[: log.log_end_offset] == values(log)
        assert appender.pending_count == len(taken) - log.log_end_offset
        assert appender.pending_count * len(taken[0]) < 20_000
        with pytest.raises(DiskFullError):
            appender.flush()
        disk.capacity_bytes = 4 << 20
        appender.append(None, b"last")
        appender.close()
        assert [*taken, b"last"] == values(log)


def test_appender_failed_linger_sets_last_error_and_retries() -> None:
    """`last_error` is cleared by the write that succeeds."""
    disk = SimulatedDisk(capacity_bytes=1 << 20)
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    with manual_log(
        Path("/orders-0"),
        filesystem=disk,
        clock=clock,
        scheduler=scheduler,
        segment_index_bytes=4096,
    ) as log:
        appender = log.appender(linger_ms=5, buffer_bytes=4 << 20)
        appender.append(b"k", bytes(700_000))
        appender.append(b"k", bytes(700_000))
        scheduler.advance(5)
        assert isinstance(appender.last_error, DiskFullError)
        assert 2 == appender.pending_count
        disk.capacity_bytes = 8 << 20
        scheduler.advance(5)
        assert appender.last_error is None
        assert (2, 0) == (log.log_end_offset, appender.pending_count)


def test_log_close_writes_and_closes_its_appenders(directory: Path) -> None:
    """The waiting record is read back."""
    with small(directory) as log:
        appender = log.appender()
        appender.append(b"k", b"v")
    assert appender.is_closed
    with manual_log(directory, read_only=True) as log:
        assert [b"v"] == values(log)


def test_appender_can_append_in_its_own_callback(directory: Path) -> None:
    """The written records have left the buffer before the callback."""
    with small(directory) as log:
        appender = log.appender(
            on_append=lambda info: appender.append(b"k", b"2") if not info.first_offset else None
        )
        appender.append(b"k", b"1")
        appender.flush()
        appender.flush()
        assert [b"1", b"2"] == values(log)


def test_appender_shared_by_threads_keeps_every_record(directory: Path) -> None:
    """Once each, and those of one thread in order."""
    with small(directory) as log:
        appender = log.appender(buffer_bytes=1000)

        def work(name: int) -> None:
            for number in range(200):
                appender.append(b"%d" % name, b"%d" % number)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        appender.close()
        found = [(record.key, record.value) for record in log.records()]
        for name in range(3):
            mine = [value for key, value in found if key == b"%d" % name]
            assert [b"%d" % number for number in range(200)] == mine


@pytest.mark.parametrize("wrong", [{"buffer_bytes": -1}, {"linger_ms": -1}, {"wait": "now"}])
def test_appender_invalid_arguments_are_refused(wrong: dict[str, Any], directory: Path) -> None:
    """When the appender is created."""
    with small(directory) as log, pytest.raises(ValueError, match=r"must (not )?be .*, got "):
        log.appender(**wrong)
