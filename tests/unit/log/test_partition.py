"""The parts of a log, without the facade."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from kafkalog import LogClosedError, LogConfig, Record, open_log
from kafkalog.errors import ReadOnlyLogError
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.checkpoint_store import FileCheckpointStore
from kafkalog.log.log import Log, partition_of
from kafkalog.log.opening import open_partition
from kafkalog.log.partition import LogEnvironment, Partition
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.records.packing import pack_records
from tests.support.manual_time import ManualClock, ManualScheduler


def opened(directory: Path, *, read_only: bool = False) -> Partition:
    """Return the parts of a log on manual time."""
    directory.mkdir(exist_ok=True)
    clock = ManualClock()
    return open_partition(
        FileCheckpointStore(find_partition_paths(PosixFileSystem(), directory)),
        LogConfig(message_timestamp_after_max_ms=2**62),
        LogEnvironment(clock=clock, scheduler=ManualScheduler(clock)),
        read_only=read_only,
    )


def append(partition: Partition, *values: bytes) -> int:
    """Append records by the parts alone; return the first offset."""
    lane = partition.appender.lane
    records = [Record(value=value) for value in values]
    run = pack_records(records, lane.rules, lane.admit("written"), None)
    return partition.appender.append(run, "written").first_offset


def test_partition_appends_reads_and_closes_without_facade(tmp_path: Path) -> None:
    """Each part works alone, and the facade adds no behaviour."""
    partition = opened(tmp_path / "orders-0")
    assert (0, 2) == (append(partition, b"a", b"b"), append(partition, b"c"))
    assert (3, 0) == (partition.view.log_end_offset, partition.flusher.durable_offset)
    assert 3 == partition.flusher.flush()
    assert [b"a", b"b", b"c"] == [each.value for each in partition.reader.records(None, None)]
    record = partition.lookup.get(1, "read_uncommitted", True)
    assert record is not None
    assert b"b" == record.value
    assert partition.lookup.table.find(1) is not None
    assert 2 == partition.truncator.truncate_to(2)
    assert 1 == partition.retention.delete_records(1)
    assert (1, 2) == (partition.view.log_start_offset, partition.view.log_end_offset)
    partition.close()
    partition.close()
    assert partition.lookup.table.readers is None
    with pytest.raises(LogClosedError):
        append(partition, b"d")
    with pytest.raises(LogClosedError):
        partition.view.snapshot()
    assert 2 == partition.view.last_snapshot.end_offset


def test_partition_of_returns_the_parts_of_a_log(tmp_path: Path) -> None:
    """It is the only accessor."""
    partition = opened(tmp_path / "orders-0")
    with Log(partition) as log:
        assert partition is partition_of(log)
        assert log.directory == partition.paths.directory
        assert "open" in repr(log)
        assert "open" in repr(partition)
    assert "closed" in repr(partition)


def test_read_only_partition_has_no_producers(tmp_path: Path) -> None:
    """Access to them raises; readers continue."""
    with open_log(tmp_path / "orders-0") as log:
        log.append([Record(value=b"a")])
    partition = opened(tmp_path / "orders-0", read_only=True)
    with pytest.raises(ReadOnlyLogError):
        _ = partition.producers
    with pytest.raises(ReadOnlyLogError):
        append(partition, b"b")
    assert [b"a"] == [each.value for each in partition.reader.records(None, None)]
    assert [] == partition.list_transactions()
    assert "read-only" in repr(partition)
    partition.close()


def test_segments_kept_by_a_reader_do_not_keep_the_partition(tmp_path: Path) -> None:
    """They have weak references to it only."""
    partition = opened(tmp_path / "orders-0")
    append(partition, b"a")
    segments, reference = partition.view.segments(), weakref.ref(partition)
    partition.close()
    del partition
    gc.collect()
    assert reference() is None
    segments[0].context.report_damage()
    assert segments[0].context.end_before(0) is None
