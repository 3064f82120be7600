"""Tests of the cleaning of a log's files: retained records, progress, and interruptions."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog import CleanerConfig, Codec, Log, LogConfig, Record, compact_log
from kafkalog.cleaner.cleaning import Cleaner
from kafkalog.cleaner.cleaning_result import CleaningProgress, CleaningResult
from kafkalog.cleaner.selection import CleanableRange
from kafkalog.errors import (
    ConfigError,
    CorruptRecordError,
    DiskFullError,
    LogCleaningAbortedError,
)
from kafkalog.indexes.transaction_index import decode_entries
from kafkalog.log import segment_writer
from kafkalog.log.cleaner_access import cleaner_access
from tests.support import golden
from tests.support.damage import batch_positions, flip
from tests.support.logs import manual_log
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.producing import Client
from tests.support.simulated_disk import SimulatedDisk

DIRECTORY = Path("/data/orders-0")
COMPACT: dict[str, Any] = {
    "cleanup_policy": ("compact",),
    "segment_bytes": 1500,
    "batch_bytes": 300,
}
ENTRY = 24
DAY_MS = 86_400_000


def fill(log: Log, count: int, *, keys: int = 30, seed: int = 1) -> dict[bytes, bytes]:
    """Append records with keys that repeat; return the latest value of each."""
    chosen = random.Random(seed)
    latest: dict[bytes, bytes] = {}
    for number in range(count):
        key, value = b"key %d" % chosen.randrange(keys), b"value %d" % number
        log.append([Record(key=key, value=value)])
        latest[key] = value
    return latest


def latest_values(log: Log) -> dict[bytes | None, bytes | None]:
    """Return the latest values that a reader from the start has seen."""
    return {record.key: record.value for record in log.records()}


def unfinished(names: Sequence[str]) -> list[str]:
    """Return the names of files of unfinished work."""
    return [name for name in names if name.endswith((".cleaned", ".swap", ".covered"))]


def clean(log: Log, memory_bytes: int = 1 << 16, **settings: Any) -> CleaningResult:
    """Clean everything but the active segment."""
    cleaner = Cleaner(CleanerConfig(**settings), memory_bytes=memory_bytes, clock=ManualClock())
    return cleaner.clean(
        log, CleanableRange(cleaner_access(log).cleaner_offset or 0, log.log_end_offset)
    )


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "lz4", "zstd"])
def test_cleaned_log_keeps_the_latest_record_of_each_key(tmp_path: Path, codec: str) -> None:
    """Offsets, order and log end stay; the reopened log is the same."""
    directory = tmp_path / "orders-0"
    with manual_log(directory, **COMPACT, compression_type=codec) as log:
        latest = fill(log, 400)
        before = {record.offset: record for record in log.records()}
        count = len(log.segments())
        cleaning = compact_log(log, include_active=True, memory_bytes=1 << 16)
        records = list(log.records())
        assert latest == latest_values(log)
        assert len(latest) == len(records)
        assert sorted(record.offset for record in records) == [r.offset for r in records]
        assert [before[record.offset] for record in records] == records
        assert (
            400 == log.log_end_offset == cleaning.end_offset == cleaner_access(log).cleaner_offset
        )
        assert (1, 30, True) == (cleaning.passes, cleaning.map_entries, cleaning.is_complete)
        assert count == cleaning.segments_before
        assert (400, 30) == (cleaning.statistics.records_read, cleaning.statistics.records_kept)
        assert 400 == log.append([Record(key=b"a", value=b"b")]).first_offset
    with kafkalog.open_log(directory) as log:
        assert log.recovery_report.clean
        assert not log.recovery_report.rebuilt
        assert [*records, *log.records(400)] == list(log.records())
        assert log.get(records[3].offset) == records[3]
    assert not unfinished([path.name for path in directory.iterdir()])


def test_clean_log_is_not_changed(tmp_path: Path) -> None:
    """A second cleaning finds nothing dirty; a full cleaning writes no file."""
    with manual_log(tmp_path / "orders-0", **COMPACT) as log:
        fill(log, 200)
        compact_log(log, include_active=True, memory_bytes=1 << 16)
        count = len(log.segments())
        cleaner_access(log).checkpoint_cleaner_offset(0)
        assert count > compact_log(log, memory_bytes=1 << 16).segments_after
        inodes = {path.name: path.stat().st_ino for path in log.directory.glob("*.log")}
        again = compact_log(log, memory_bytes=1 << 16)
        assert (0, 0) == (again.passes, again.segments_before)
        cleaner_access(log).checkpoint_cleaner_offset(0)
        cleaning = compact_log(log, memory_bytes=1 << 16)
        assert cleaning.segments_before == cleaning.segments_unchanged > 0
        found = {path.name: path.stat().st_ino for path in log.directory.glob("*.log")}
        assert inodes == found


def test_cleaning_sizes_are_shown_in_the_largest_fitting_unit(tmp_path: Path) -> None:
    """A broker logs megabytes only: of a small log it shows zeros."""
    with manual_log(tmp_path / "orders-0", **COMPACT) as log:
        fill(log, 80)
        log.roll()
        cleaning = compact_log(log)
    assert " 0.0 MB" not in cleaning.describe()
    for size, amount in (
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (1536, "1.5 KB"),
        (5 << 20, "5.0 MB"),
    ):
        statistics = replace(cleaning.statistics, bytes_read=size)
        text = replace(cleaning, statistics=statistics, duration_ms=cleaning.reading_ms).describe()
        assert f"before: {amount}, " in text
        assert f"rewritten: {amount} in 0.0 s (" in text


@pytest.mark.parametrize("algorithm", ["md5", "siphash", "exact"])
def test_map_too_small_for_a_segment_takes_several_passes(
    tmp_path: Path, algorithm: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each cleaning finishes a segment, and reports how much memory would suffice for one pass."""
    with manual_log(tmp_path / "orders-0", **COMPACT) as log:
        latest = fill(log, 80, keys=40)
        log.roll()
        ends = []
        while (cleaner_access(log).cleaner_offset or 0) < 80:
            cleaning = clean(log, ENTRY * 6, hash_algorithm=algorithm, io_buffer_load_factor=1.0)
            cleaner_access(log).checkpoint_cleaner_offset(cleaning.end_offset)
            ends.append(cleaning.end_offset)
            assert cleaning.map_utilization <= 1
            needs_more = cleaning.memory_bytes < cleaning.bytes_for_one_pass
            assert needs_more == (cleaning.passes > 1) == ("passes" in cleaning.describe())
        assert 3 < len(ends)
        assert sorted(set(ends)) == ends
        assert latest == latest_values(log)
        assert len(latest) == sum(1 for _ in log.records())
    assert "it is cleaned in" in caplog.text


def test_map_full_in_a_later_segment_ends_the_range_there(tmp_path: Path) -> None:
    """As in a broker; the next cleaning starts from that offset."""
    with manual_log(tmp_path / "orders-0", **COMPACT) as log:
        latest = fill(log, 200, keys=60)
        log.roll()
        cleaning = clean(log, ENTRY * 50, io_buffer_load_factor=1.0)
        assert (1, 50) == (cleaning.passes, cleaning.map_entries)
        assert 50 <= cleaning.end_offset < cleaning.target_end_offset == 200
        assert list(range(cleaning.end_offset, 200)) == [
            record.offset for record in log.records(cleaning.end_offset)
        ]
        assert cleaning.memory_bytes < cleaning.bytes_for_one_pass
        assert latest == latest_values(log)
        cleaner_access(log).checkpoint_cleaner_offset(cleaning.end_offset)
        assert 200 == clean(log).end_offset
        assert len(latest) == sum(1 for _ in log.records())


@pytest.mark.parametrize("memory_bytes", [1 << 16, ENTRY * 4])
def test_tombstone_is_removed_by_the_second_cleaning_after_its_horizon(
    tmp_path: Path, memory_bytes: int
) -> None:
    """The first cleaning only sets the horizon, with any number of passes."""
    clock = ManualClock()
    with manual_log(tmp_path / "orders-0", clock=clock, **COMPACT, delete_retention_ms=0) as log:
        for number in range(12):
            log.append([Record(key=b"%d" % (number % 6), value=None if number > 8 else b"v")])
        for expected in (6, 3):
            log.append([Record(key=b"last", value=b"v")])
            compact_log(log, include_active=True, memory_bytes=memory_bytes)
            kept = [record for record in log.records() if record.key != b"last"]
            assert expected == len(kept)
            clock.advance(1)


def test_cleaning_aborted_at_any_check_leaves_no_files(tmp_path: Path) -> None:
    """The log has the same records."""
    with manual_log(tmp_path / "orders-0", **COMPACT) as log:
        latest = fill(log, 100)
        log.roll()
        cleaner = Cleaner(CleanerConfig(), memory_bytes=1 << 16, clock=ManualClock())
        span = CleanableRange(0, 100)
        questions = 0
        while True:
            questions += 1
            left = [questions]

            def check(left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == 0:
                    raise LogCleaningAbortedError("stopped")

            try:
                cleaner.clean(log, span, check=check)
            except LogCleaningAbortedError:
                assert not unfinished([path.name for path in log.directory.iterdir()])
                assert latest == latest_values(log)
            else:
                break
        assert 10 < questions


@pytest.mark.parametrize("how", ["close", "truncate", "delete"])
def test_log_changed_during_a_cleaning_aborts_it(tmp_path: Path, how: str) -> None:
    """Records that the cleaning relied on may be gone; only finished groups count."""
    log = manual_log(tmp_path / "orders-0", **COMPACT)
    fill(log, 200)
    log.roll()
    changes: dict[str, Callable[[], object]] = {
        "close": log.close,
        "truncate": lambda: log.truncate_to(100),
        "delete": lambda: log.delete_records(log.segments()[1].base_offset),
    }

    def change(progress: CleaningProgress) -> None:
        if progress.stage == "writing" and 0 < progress.done_bytes:
            changes.pop(how, lambda: None)()

    cleaner = Cleaner(CleanerConfig(), memory_bytes=1 << 16, clock=ManualClock())
    with pytest.raises(LogCleaningAbortedError):
        cleaner.clean(log, CleanableRange(0, 200), on_progress=change)
    log.close()
    with kafkalog.open_log(log.directory) as log:
        expected = {"close": 200, "truncate": 100, "delete": 200}[how]
        found = [record.offset for record in log.records()]
        start = log.log_start_offset
        assert list(range(start, expected)) == found
        assert not unfinished([path.name for path in log.directory.iterdir()])


@pytest.mark.parametrize("slot", [1, -2], ids=["second segment", "last sealed segment"])
def test_corrupt_batch_ends_a_cleaning_with_an_error(tmp_path: Path, slot: int) -> None:
    """The error names file and position; no file was changed or left."""
    directory = tmp_path / "orders-0"
    with manual_log(directory, **COMPACT) as log:
        fill(log, 100)
        log.roll()
        path = log.segments()[slot].path
    position = batch_positions(path)[2]
    flip(path, position + 70)
    with manual_log(directory, **COMPACT) as log:
        before = sorted((each.name, each.stat().st_ino) for each in directory.glob("*.log"))
        with pytest.raises(CorruptRecordError) as raised:
            compact_log(log, memory_bytes=1 << 16)
        assert (str(path), position) == (str(raised.value.path), raised.value.position)
        after = sorted((each.name, each.stat().st_ino) for each in directory.glob("*.log"))
        assert before == after
        assert not unfinished([each.name for each in directory.iterdir()])
        assert cleaner_access(log).cleaner_offset is None


def test_full_disk_ends_a_cleaning_without_loss() -> None:
    """No file is left, appends work, and with free space the cleaning succeeds."""
    disk = SimulatedDisk()
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    config = LogConfig(**COMPACT, segment_index_bytes=64)
    with manual_log(
        DIRECTORY, clock=clock, scheduler=scheduler, filesystem=disk, config=config
    ) as log:
        latest = fill(log, 100)
        log.roll()
        log.flush()
        disk.capacity_bytes = disk.used_bytes + 512
        with pytest.raises(DiskFullError):
            compact_log(log, memory_bytes=1 << 16)
        assert latest == latest_values(log)
        assert not unfinished(disk.list(DIRECTORY))
        disk.capacity_bytes = None
        assert 100 == compact_log(log, memory_bytes=1 << 16).end_offset
        assert latest == latest_values(log)
        assert len(latest) == sum(1 for _ in log.records())


def test_throttle_and_progress_count_every_byte(tmp_path: Path) -> None:
    """Bytes that are read, in both passes, and bytes that are written."""
    with manual_log(tmp_path / "orders-0", **COMPACT) as log:
        fill(log, 100)
        log.roll()
        size = sum(segment.size_bytes for segment in log.segments())
        moved: list[int] = []
        progress: list[CleaningProgress] = []
        cleaner = Cleaner(
            CleanerConfig(), memory_bytes=1 << 16, clock=ManualClock(), throttle=moved.append
        )
        cleaning = cleaner.clean(log, CleanableRange(0, 100), on_progress=progress.append)
        assert 2 * size + cleaning.statistics.bytes_written == sum(moved)
        for stage in ("reading keys", "writing"):
            steps = [step for step in progress if step.stage == stage]
            assert [size] * len(steps) == [step.total_bytes for step in steps]
            assert size == steps[-1].done_bytes


def test_log_without_compaction_is_refused(tmp_path: Path) -> None:
    """Records without a key would be removed."""
    with (
        manual_log(tmp_path / "orders-0") as log,
        pytest.raises(ConfigError, match=r"cleanup\.policy = delete"),
    ):
        compact_log(log)


def test_truncated_log_is_cleaned_from_the_truncation_offset(tmp_path: Path) -> None:
    """Records appended after the truncation were never cleaned."""
    with manual_log(tmp_path / "orders-0", **COMPACT) as log:
        fill(log, 100)
        compact_log(log, include_active=True, memory_bytes=1 << 16)
        assert 100 == cleaner_access(log).cleaner_offset
        log.truncate_to(90)
        assert (cleaner_access(log).cleaner_offset or 0) <= 90
        latest = latest_values(log) | fill(log, 100, seed=2)
        compact_log(log, include_active=True, memory_bytes=1 << 16)
        assert latest == latest_values(log)
        assert len(latest) == sum(1 for _ in log.records())


def test_codecs_of_batches_are_kept(tmp_path: Path) -> None:
    """A batch that loses records is compressed again with its codec."""
    with manual_log(tmp_path / "orders-0", **COMPACT, compression_type="zstd") as log:
        for number in range(20):
            log.append([Record(key=b"%d" % key, value=b"x" * 40) for key in (number % 7, 100)])
        compact_log(log, include_active=True, memory_bytes=1 << 16)
        assert {Codec.ZSTD} == {batch.codec for batch in log.batches()}


@pytest.mark.parametrize("algorithm", ["md5", "siphash", "exact"])
def test_keys_with_one_md5_are_distinct_under_a_keyed_hash(tmp_path: Path, algorithm: str) -> None:
    """Under MD5, as in a broker, the older record is lost."""
    vector = golden.vectors("md5_collision")
    keys = [bytes.fromhex(vector[name]) for name in ("first", "second")]
    with manual_log(tmp_path / "orders-0", **COMPACT) as log:
        for key in (*keys, keys[0], keys[1]):
            log.append([Record(key=key, value=b"v")])
        compact_log(log, include_active=True, config=CleanerConfig(hash_algorithm=algorithm))
        kept = [record.offset for record in log.records()]
        assert ([3] if algorithm == "md5" else [2, 3]) == kept


@pytest.mark.parametrize("codec", ["uncompressed", "zstd"])
def test_output_above_a_segments_limits_is_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """By bytes or by offsets: no record is lost, and the segments follow each other."""
    monkeypatch.setattr(segment_writer, "SEGMENT_BYTES_MAX", 2000)
    directory = tmp_path / "orders-0"
    settings = COMPACT | {"segment_bytes": 1500, "compression_type": codec}
    with manual_log(directory, **settings) as log:
        latest = fill(log, 100, keys=60)
        log.roll()
        log.reconfigure(log.config.replace(segment_bytes=1 << 20))
        cleaning = clean(log)
        assert 3 < cleaning.segments_before
        assert 1 < cleaning.segments_after == len(log.segments()) - 1
        assert all(segment.size_bytes <= 2000 for segment in log.segments())
        assert latest == latest_values(log)
        offsets = [record.offset for record in log.records()]
    with kafkalog.open_log(directory) as log:
        assert offsets == [record.offset for record in log.records()]
        assert not log.recovery_report.rebuilt
    assert not unfinished([path.name for path in directory.iterdir()])


def test_new_segment_has_the_file_time_of_its_last_source(tmp_path: Path) -> None:
    """Records without a timestamp and old tombstones expire by the file time."""
    with manual_log(tmp_path / "orders-0", **COMPACT | {"segment_bytes": 1 << 20}) as log:
        for number in range(3):
            fill(log, 10)
            path = log.segments()[-1].path
            log.roll()
            os.utime(path, ns=(0, (5000 + number) * 1_000_000_000))
        assert 1 == clean(log).segments_after
        assert 5002 == log.segments()[0].path.stat().st_mtime


def test_log_being_cleaned_refuses_a_second_cleaning(tmp_path: Path) -> None:
    """Both would write the same files."""
    with manual_log(tmp_path / "orders-0", **COMPACT) as log:
        latest = fill(log, 50)
        refused = []

        def try_too(_progress: CleaningProgress) -> None:
            with pytest.raises(LogCleaningAbortedError, match="already"):
                clean(log)
            refused.append(1)

        compact_log(log, include_active=True, memory_bytes=1 << 16, on_progress=try_too)
        assert refused
        assert latest == latest_values(log)


def test_aborted_transaction_above_a_full_map_stays_in_the_index(tmp_path: Path) -> None:
    """Its records are in the last rewritten segment, and are not cleaned yet."""
    client = Client(7)
    # Not a compacted topic yet: the producer sends no keys.
    with manual_log(tmp_path / "orders-0", segment_bytes=1000) as log:
        first = fill(log, 10)
        log.roll()
        fill(log, 8, keys=1000, seed=3)
        begins = client.send(log, 2, transactional=True).first_offset
        client.end(log, "abort")
        log.append([Record(key=b"last", value=b"v")])
        log.roll()
        cleaning = clean(log, ENTRY * (len(first) + 3), io_buffer_load_factor=1.0)
        assert (1, False) == (cleaning.passes, cleaning.is_complete)
        assert 10 < cleaning.end_offset <= begins
        index = log.segments()[-2].path.with_suffix(".txnindex")
        assert [(7, begins)] == [
            each[:2] for each in decode_entries(index.read_bytes(), log.segments()[-2].base_offset)
        ]
        committed = [record.offset for record in log.records(isolation="read_committed")]
        assert not {begins, begins + 1} & set(committed)
