"""Compaction of logs that brokers wrote: as a broker does it, and in every old format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

import kafkalog
from kafkalog import BatchView, CleanerConfig, LogConfig, Record, compact_log
from kafkalog.cleaner.cleaning import Cleaner
from kafkalog.cleaner.selection import CleanableRange
from kafkalog.layout import MAGIC_V2
from tests.golden_directories.test_cleaned import STOPPED, latest_horizon, segment
from tests.support.golden import copy_tree
from tests.support.golden_old import all_old_partitions, copy_old_partition
from tests.support.manual_time import ManualClock, ManualScheduler

CLEANED = (0, 1417, 1605, 1781)
SOURCES = (0, 900, 1081, 1240, 1417, 1605, 1781)
MEMORY = 1 << 18


def test_clean_log_of_a_stopped_broker_gives_its_files(tmp_path: Path) -> None:
    """Seven segments from before the round become the broker's four, byte for byte."""
    expected = [segment(STOPPED, base) for base in CLEANED]
    directory = copy_tree(STOPPED, tmp_path / STOPPED.name)
    for base in CLEANED:
        for path in directory.glob(f"{base:020d}.*"):
            if path.suffix in (".log", ".index", ".timeindex"):
                path.unlink()
    for path in directory.glob("*.deleted"):
        path.rename(path.with_suffix(""))
    clock = ManualClock(now_ms=latest_horizon(expected[1]) - 300)
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=16384, delete_retention_ms=300)
    with kafkalog.open_log(
        directory, config=config, clock=clock, scheduler=ManualScheduler(clock)
    ) as log:
        assert list(SOURCES) == [each.base_offset for each in log.segments()[:-1]]
        cleaner = Cleaner(CleanerConfig(), memory_bytes=MEMORY, clock=clock)
        cleaning = cleaner.clean(log, CleanableRange(1417, 1961))
        assert [*CLEANED, 1961] == [each.base_offset for each in log.segments()]
        assert (1961, 7, 4) == (
            cleaning.end_offset,
            cleaning.segments_before,
            cleaning.segments_after,
        )
        assert cleaning.statistics.tombstones_expired > 0
        assert expected == [segment(directory, base) for base in CLEANED]


def compacted(records: list[Record], batches: list[BatchView], end_offset: int) -> list[Record]:
    """Return the committed records that a cleaning up to an offset keeps."""
    below = [record for record in records if record.offset < end_offset]
    latest = {record.key: record for record in below if record.key is not None}
    kept = {record.offset: record for record in latest.values()}
    lasts = [batch for batch in batches if batch.header.next_offset == end_offset]
    if lasts and lasts[0].header.magic < MAGIC_V2:
        # A record is kept for the end of the range.
        kept[below[-1].offset] = below[-1]
    return [*(kept[offset] for offset in sorted(kept)), *records[len(below) :]]


def old_partitions() -> Iterator[ParameterSet]:
    """Yield all 123; most partitions of the common kinds are left to the slow run."""
    for number, (broker, name) in enumerate(all_old_partitions()):
        is_special = any(word in name for word in ("mixed", "compact", "txn"))
        marks = () if is_special or number % 10 == 0 else pytest.mark.slow
        yield pytest.param(broker, name, marks=marks)


@pytest.mark.parametrize(("broker", "name"), list(old_partitions()))
def test_compact_log_of_an_old_broker_keeps_the_latest_records(
    tmp_path: Path, broker: str, name: str
) -> None:
    """All 123 partitions of four brokers, formats mixed or not, any codec, one segment or many."""
    directory = copy_old_partition(broker, name, tmp_path / name)
    clock = ManualClock()
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=1 << 20)
    with kafkalog.open_log(
        directory, config=config, clock=clock, scheduler=ManualScheduler(clock)
    ) as log:
        before, batches = list(log.records(isolation="read_committed")), list(log.batches())
        end = log.log_end_offset
        cleaning = compact_log(log, include_active=True, memory_bytes=MEMORY)
        # All of it, unless a transaction is still open.
        assert end == cleaning.end_offset or log.last_stable_offset < end
        found = list(log.records(isolation="read_committed"))
        assert compacted(before, batches, cleaning.end_offset) == found
        assert end == log.log_end_offset
    with kafkalog.open_log(directory) as log:
        assert log.recovery_report.clean
        assert found == list(log.records(isolation="read_committed"))
        assert end == log.log_end_offset
    assert not [*directory.glob("*.cleaned"), *directory.glob("*.swap")]
