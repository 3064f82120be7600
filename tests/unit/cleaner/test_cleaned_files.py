"""Tests of a cleaned log's files against the reference: cleaned twice, and reopened."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog import CleanerConfig, Log, LogConfig
from kafkalog.cleaner.cleaning import Cleaner
from kafkalog.cleaner.record_filter import CleaningRules
from kafkalog.cleaner.selection import CleanableRange
from kafkalog.files.names import FileKind, SegmentFiles
from kafkalog.indexes.transaction_index import AbortedTransaction, decode_entries
from kafkalog.log.cleaner_access import cleaner_access
from kafkalog.log.log import partition_of
from tests.support.cleaning_cases import DirtyLog, dirty_logs
from tests.support.logs import manual_log
from tests.support.manual_time import ManualClock
from tests.support.reference_compaction import Kept, ReferenceCleaning, kept_of
from tests.support.simulated_disk import SimulatedDisk

DIRECTORY = Path("/data/orders-0")
NOW_MS = 1000
ENTRY = 24


def put_segments(disk: SimulatedDisk, log: DirtyLog, cuts: set[int]) -> None:
    """Write the batches of a log in segments, a new one before some of the batches."""
    disk.make_durable(DIRECTORY)
    handle, position = None, 0
    for number, batch in enumerate(log.batches):
        if handle is None or number in cuts:
            base = log.ends[number - 1] if number else 0
            handle = disk.open(SegmentFiles(DIRECTORY, base).log, create=True)
            position = 0
        handle.pwrite(batch, position)
        position += len(batch)
    disk.make_durable()


def sealed_bytes(log: Log, disk: SimulatedDisk) -> bytes:
    """Return the bytes of all segments but the active one, from their files."""
    found = b""
    for segment in log.segments()[:-1]:
        handle = disk.open(segment.path)
        found += handle.pread(handle.size(), 0)
    return found


def entries_of(disk: SimulatedDisk) -> list[AbortedTransaction]:
    """Return the entries of the transaction indexes."""
    found = []
    for name in disk.list(DIRECTORY):
        if name.endswith(FileKind.TRANSACTION_INDEX):
            handle = disk.open(DIRECTORY / name)
            found += decode_entries(handle.pread(handle.size(), 0), int(name[:20]))
    return sorted(found)


def reference(
    log: Log, data: bytes, end: int, now_ms: int, aborted: list[AbortedTransaction]
) -> list[Kept]:
    """Return the records that the rules retain of a log that is dirty from its start."""
    rules = CleaningRules(
        now_ms=now_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        end_offset=end,
        last_batches=cleaner_access(log).last_batches(),
        max_message_bytes=1 << 20,
    )
    return ReferenceCleaning(
        data=data,
        rules=rules,
        first_dirty=0,
        latest_offset=end - 1,
        aborted=aborted,
        old_tombstones_stay=True,
    ).kept()


@pytest.mark.parametrize("algorithm", ["md5", "exact"])
@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(log=dirty_logs(), data=st.data())
def test_log_cleaned_twice_equals_the_reference(
    algorithm: str, log: DirtyLog, data: st.DataObject
) -> None:
    """For any bounds and groups of segments; nothing changes when it is reopened."""
    disk, clock = SimulatedDisk(), ManualClock(NOW_MS)
    put_segments(disk, log, data.draw(st.sets(st.integers(1, max(1, len(log.batches) - 1)))))
    config = LogConfig(
        cleanup_policy=("compact",),
        segment_bytes=data.draw(st.sampled_from([300, 1000, 1 << 20])),
        delete_retention_ms=data.draw(st.sampled_from([0, 300])),
        index_interval_bytes=data.draw(st.sampled_from([0, 200])),
    )
    cleaner = Cleaner(CleanerConfig(hash_algorithm=algorithm), memory_bytes=1 << 16, clock=clock)
    with manual_log(DIRECTORY, clock=clock, filesystem=disk, config=config) as opened:
        opened.roll()
        end, found = opened.log_end_offset, b""
        for round_number in range(2):
            before = sealed_bytes(opened, disk)
            aborted = partition_of(opened).reader.aborted_transactions(0, end)
            expected = reference(opened, before, end, clock.now_ms(), aborted)
            cleaning = cleaner.clean(opened, CleanableRange(0, end))
            found = sealed_bytes(opened, disk)
            assert expected == kept_of(found)
            assert (end, 1) == (cleaning.end_offset, cleaning.passes)
            assert cleaning.statistics.bytes_written == len(found)
            assert round_number or len(before) == cleaning.statistics.bytes_read
            clock.advance(data.draw(st.sampled_from([0, 300, 5000])))
        entries = entries_of(disk)
        records = list(opened.records(isolation="read_committed"))
        lasts = cleaner_access(opened).last_batches()
    with manual_log(DIRECTORY, clock=clock, filesystem=disk, config=config) as opened:
        assert opened.recovery_report.clean
        assert not opened.recovery_report.rebuilt
        assert found == sealed_bytes(opened, disk)
        assert records == list(opened.records(isolation="read_committed"))
        assert end == opened.log_end_offset
        assert lasts == cleaner_access(opened).last_batches()
        assert {each[:3] for each in entries} <= {each[:3] for each in log.aborted}


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(log=dirty_logs(old_formats=False), data=st.data())
def test_several_passes_retain_the_records_of_one_pass(log: DirtyLog, data: st.DataObject) -> None:
    """A map of three keys, and a map of all: the same records, committed or not."""
    seen = []
    cuts = data.draw(st.sets(st.integers(1, max(1, len(log.batches) - 1))))
    for entries in (3, 1000):
        disk, clock = SimulatedDisk(), ManualClock(NOW_MS)
        put_segments(disk, log, cuts)
        config = LogConfig(cleanup_policy=("compact",), delete_retention_ms=0)
        cleaner = Cleaner(
            CleanerConfig(io_buffer_load_factor=1.0), memory_bytes=entries * ENTRY, clock=clock
        )
        with manual_log(DIRECTORY, clock=clock, filesystem=disk, config=config) as opened:
            opened.roll()
            end, first_dirty = opened.log_end_offset, 0
            while first_dirty < end:
                cleaning = cleaner.clean(opened, CleanableRange(first_dirty, end))
                assert first_dirty < cleaning.end_offset
                first_dirty = cleaning.end_offset
            values = {record.key: record for record in opened.records(isolation="read_committed")}
            seen.append({key: record for key, record in values.items() if record.value is not None})
    assert seen[0] == seen[1]
