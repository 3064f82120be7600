"""A second compaction of partitions that brokers have compacted: only the rules' changes.

A directory restored to the state before a broker's round gives the same files, to the byte.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import CleanerConfig, Log, LogConfig, open_log
from kafkalog.cleaner.cleaning import Cleaner
from kafkalog.cleaner.selection import CleanableRange
from tests.support import golden
from tests.support.compaction_rules import (
    Served,
    Tombstones,
    state_of,
    verify_compacted,
    verify_finished,
)
from tests.support.golden_old import all_old_partitions, copy_old_partition
from tests.support.manual_time import ManualClock, ManualScheduler

NEW = [case for case in golden.all_partitions() if "compact-" in case[1]]
OLD = [case for case in all_old_partitions() if "compact-" in case[1]]
# Only new partitions have tombstones whose delete horizon is ahead.
CASES = [(*case, True) for case in NEW + OLD] + [(*case, False) for case in NEW]
RETENTION_MS = 300
CONFIG = LogConfig(
    segment_bytes=1 << 14,
    cleanup_policy=("compact",),
    delete_retention_ms=RETENTION_MS,
    retention_ms=-1,
    message_timestamp_after_max_ms=2**62,
)


def opened(directory: Path, now_ms: int) -> Log:
    """Open a copy at a time."""
    clock = ManualClock(now_ms)
    return open_log(directory, config=CONFIG, clock=clock, scheduler=ManualScheduler(clock))


def clean(log: Log, now_ms: int, first_dirty: int, end_offset: int) -> None:
    """Clean a part of a log."""
    cleaner = Cleaner(CleanerConfig(), memory_bytes=1 << 16, clock=ManualClock(now_ms))
    assert cleaner.clean(log, CleanableRange(first_dirty, end_offset)).end_offset == end_offset


@pytest.fixture(name="copy")
def fixture_copy(tmp_path: Path, data_set: str, partition: str) -> Path:
    """A copy of the partition alone."""
    copy = copy_old_partition if (data_set, partition) in all_old_partitions() else None
    return (copy or golden.copy_partition)(data_set, partition, tmp_path / partition)


def horizons(log: Log) -> dict[int, int]:
    """Return offset -> delete horizon of the tombstones that have one."""
    return {
        record.offset: batch.header.delete_horizon_ms
        for batch in log.batches()
        if batch.header.delete_horizon_ms is not None and not batch.header.is_control
        for record in batch.records()
        if record.value is None
    }


@pytest.mark.parametrize(("data_set", "partition", "is_over"), CASES)
def test_clean_compacted_partition_again_removes_only_expired_tombstones(
    copy: Path, is_over: bool
) -> None:
    """State, order, offsets and head stay; another cleaning removes no more records."""
    with opened(copy, 0) as log:
        found = horizons(log)
    now_ms = max(found.values(), default=0) if is_over else min(found.values(), default=1) - 1
    seen = {offset: horizon - RETENTION_MS for offset, horizon in found.items()}
    with opened(copy, now_ms) as log:
        log.roll()
        before = Served.of(log)
        end_offset = min(log.segments()[-1].base_offset, log.last_stable_offset)
        tombstones = Tombstones(now_ms, RETENTION_MS, seen, seen, end_offset)
        clean(log, now_ms, 0, end_offset)
        after = Served.of(log)
        verify_compacted(before, after, end_offset=end_offset, tombstones=tombstones)
        verify_finished(after, end_offset=end_offset, tombstones=tombstones)
        clean(log, now_ms, 0, end_offset)
        verify_compacted(after, Served.of(log), end_offset=end_offset, tombstones=tombstones)
        if not after.old:
            assert after == Served.of(log)
    with opened(copy, now_ms) as log:
        assert log.recovery_report.clean
        assert state_of(after) == state_of(Served.of(log))


@pytest.fixture(name="round_begun")
def fixture_round_begun(tmp_path: Path) -> Iterator[Path]:
    """`compact-none-0` as it was before the broker's last round: `.deleted` files have it."""
    copy = golden.copy_partition(golden.CLEAN, "compact-none-0", tmp_path / "compact-none-0")
    for deleted in copy.glob("*.deleted"):
        if ".snapshot" not in deleted.name:
            deleted.rename(deleted.with_suffix(""))
        else:
            deleted.unlink()
    for index in [*copy.glob("*.index"), *copy.glob("*.timeindex")]:
        index.unlink()
    yield copy
    shutil.rmtree(copy)


def test_clean_directory_before_a_round_gives_the_brokers_bytes(round_begun: Path) -> None:
    """Four clean segments become one; three dirty segments are cleaned one by one."""
    source = golden.data_directory(golden.CLEAN) / "compact-none-0"
    expected = {path.name: path.read_bytes() for path in source.glob("*.log")}
    with open_log(source, read_only=True) as log:
        now_ms = max(horizons(log).values()) - RETENTION_MS
    with opened(round_begun, now_ms) as log:
        clean(log, now_ms, 1417, 1961)
    assert expected == {path.name: path.read_bytes() for path in round_begun.glob("*.log")}
