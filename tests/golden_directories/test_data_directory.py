"""Partitions inside a copied data directory: use of its checkpoints, marker and lock."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from kafkalog import LogConfig, LogLockedError, NotALogError, Record, open_log
from kafkalog.files.names import (
    CLEAN_SHUTDOWN_MARKER,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import OffsetCheckpoint
from tests.support import golden

DELETED_RECORDS = TopicPartition("deleted-records", 0)


@pytest.fixture(name="data", params=golden.DATA_SETS)
def fixture_data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A copy of a whole data directory."""
    return golden.copy_data_directory(request.param, tmp_path / "data")


@pytest.fixture(name="clean_data")
def fixture_clean_data(tmp_path: Path) -> Path:
    """A copy of the data directory that its broker closed in order."""
    return golden.copy_data_directory(golden.CLEAN, tmp_path / "data")


def checkpoint(data: Path, name: str) -> dict[TopicPartition, int]:
    """Return the entries of a checkpoint file."""
    return OffsetCheckpoint(PosixFileSystem(), data / name).read()


def live_partitions(data: Path) -> list[Path]:
    """Return the partition directories that are not in deletion."""
    return sorted(
        path for path in data.iterdir() if path.is_dir() and not path.name.endswith("-delete")
    )


def test_log_start_checkpoint_inside_a_batch_bounds_readers(clean_data: Path) -> None:
    """DeleteRecords moved the start into the middle of a batch: records below are not returned."""
    with open_log(clean_data / "deleted-records-0") as log:
        assert 1224 == log.log_start_offset
        first = next(log.records())
        assert 1224 == first.offset
        assert 1224 > next(log.batches()).header.base_offset
        assert 1224 == log.read(1224).first_offset or 1224 > (log.read(1224).first_offset or 0)


def test_log_start_checkpoint_open_and_close_keep_all_lines(clean_data: Path) -> None:
    """Opening and closing keeps this partition's line, and the lines of all others."""
    before = checkpoint(clean_data, LOG_START_OFFSET_CHECKPOINT)
    assert 1224 == before[DELETED_RECORDS]
    with open_log(clean_data / "deleted-records-0"):
        pass
    with open_log(clean_data / "plain-0"):
        pass
    assert before == checkpoint(clean_data, LOG_START_OFFSET_CHECKPOINT)


def test_log_start_checkpoint_delete_records_changes_one_line(clean_data: Path) -> None:
    """`delete_records` writes this partition's line at once; other lines stay."""
    before = checkpoint(clean_data, LOG_START_OFFSET_CHECKPOINT)
    with open_log(clean_data / "plain-small-0") as log:
        log.delete_records(333)
        during = checkpoint(clean_data, LOG_START_OFFSET_CHECKPOINT)
    assert {**before, TopicPartition("plain-small", 0): 333} == during
    assert during == checkpoint(clean_data, LOG_START_OFFSET_CHECKPOINT)
    with open_log(clean_data / "plain-small-0") as log:
        assert 333 == log.log_start_offset


def test_recovery_point_of_a_crash_bounds_the_scan(tmp_path: Path) -> None:
    """In the crash set only segments from the one with the recovery point on are scanned."""
    data = golden.copy_data_directory(golden.UNCLEAN, tmp_path / "data")
    points = checkpoint(data, RECOVERY_POINT_CHECKPOINT)
    for path in live_partitions(data):
        with open_log(path) as log:
            point = points.get(log.topic_partition, 0)
            bases = [segment.base_offset for segment in log.segments()]
            holder = max((base for base in bases if base <= point), default=bases[0])
            assert len([base for base in bases if base >= holder]) == (
                log.recovery_report.scanned_segments
            )
            assert log.log_end_offset == log.recovery_report.recovery_point


def test_recovery_point_close_writes_the_log_end_of_one_line(data: Path) -> None:
    """An orderly close writes the log end to this partition's line; other lines stay."""
    before = checkpoint(data, RECOVERY_POINT_CHECKPOINT)
    path = live_partitions(data)[-1]
    with open_log(path) as log:
        log.append([Record(value=b"one more")])
        end, name = log.log_end_offset, log.topic_partition
    assert {**before, name: end} == checkpoint(data, RECOVERY_POINT_CHECKPOINT)


def test_shutdown_marker_is_absent_while_a_partition_is_open(clean_data: Path) -> None:
    """While a partition is open the directory is not clean; after the close it is again."""
    marker = clean_data / CLEAN_SHUTDOWN_MARKER
    assert marker.is_file()
    with open_log(clean_data / "plain-0") as log:
        assert log.recovery_report.clean
        assert not marker.exists()
    assert marker.is_file()


def test_shutdown_marker_is_written_by_the_last_close_only(clean_data: Path) -> None:
    """The marker covers all partitions, so the first close does not write it."""
    marker = clean_data / CLEAN_SHUTDOWN_MARKER
    with open_log(clean_data / "plain-0"):
        with open_log(clean_data / "gzip-0") as second:
            assert second.recovery_report.clean
        assert not marker.exists()
        with open_log(clean_data / "gzip-0") as again:
            assert again.recovery_report.clean
    assert marker.is_file()


def test_shutdown_marker_after_a_crash_needs_every_partition(tmp_path: Path) -> None:
    """One recovered partition does not make the others clean; all of them together do."""
    data = golden.copy_data_directory(golden.UNCLEAN, tmp_path / "data")
    marker = data / CLEAN_SHUTDOWN_MARKER
    paths = sorted(path for path in data.iterdir() if path.is_dir())
    with open_log(paths[0]):
        pass
    assert not marker.exists()
    with ExitStack() as stack:
        for path in paths:
            stack.enter_context(open_log(path))
    assert marker.is_file()
    with open_log(paths[0]) as log:
        assert log.recovery_report.clean


def test_open_log_every_partition_at_once_shares_one_lock(data: Path) -> None:
    """All partitions share the lock of the directory; a second open of one raises."""
    with ExitStack() as stack:
        logs = [stack.enter_context(open_log(path)) for path in live_partitions(data)]
        for log in logs:
            log.append([Record(value=b"one more")])
        name = data / logs[0].directory.name
        with pytest.raises(LogLockedError):
            open_log(name)
    for log in logs:
        with open_log(log.directory) as again:
            assert log.recovery_report.log_end_offset + 1 == again.log_end_offset


def test_append_to_every_partition_keeps_files_of_the_broker(clean_data: Path) -> None:
    """Metadata, other checkpoints and transaction indexes survive an append to every partition.

    So do producer snapshots, except those of earlier closes, which a broker's start removes too:
    the newest one at the log end stays until the next, and every close writes its own.
    """

    def kept(*suffixes: str) -> dict[str, str]:
        files = golden.snapshot(clean_data)
        return {name: digest for name, digest in files.items() if name.endswith(suffixes)}

    def is_of_an_earlier_closing(name: str) -> bool:
        path = clean_data / name
        bases = {each.stem for each in path.parent.glob("*.log")}
        newest = max((each.stem for each in path.parent.glob("*.snapshot")), default="")
        return path.stem not in {*bases, newest}

    suffixes = [".txnindex", "metadata", ".properties", ".checkpoint"]
    suffixes += ["cleaner-offset-checkpoint", "replication-offset-checkpoint"]
    before, snapshots = kept(*suffixes), kept(".snapshot")
    leaving = {name for name in snapshots if is_of_an_earlier_closing(name)}
    assert len(before) > 30 < len(snapshots) > len(leaving) > 0
    fresh = set()
    for path in live_partitions(clean_data):
        with open_log(path, config=LogConfig(file_delete_delay_ms=0)) as log:
            log.append([Record(value=b"one more")])
            bases = {segment.base_offset for segment in log.segments()}
            fresh |= {f"{path.name}/{n:020d}.snapshot" for n in {*bases, log.log_end_offset}}
    assert before == kept(*suffixes)
    after = kept(".snapshot")
    assert {name: snapshots[name] for name in snapshots.keys() - leaving} == {
        name: digest for name, digest in after.items() if name not in fresh - snapshots.keys()
    }


def test_open_log_of_a_data_directory_raises_not_a_log(clean_data: Path) -> None:
    """The message names the partitions; nothing is created."""
    with golden.unchanged(clean_data), pytest.raises(NotALogError, match="data directory"):
        open_log(clean_data)


@pytest.mark.parametrize("name", ["no-partition-number-x", "noseparator", "-0", "a b-0"])
def test_open_log_invalid_name_in_a_data_directory_raises(clean_data: Path, name: str) -> None:
    """A broker would refuse to start on such a directory: none is created here."""
    with golden.unchanged(clean_data), pytest.raises(NotALogError, match="topic-partition"):
        open_log(clean_data / name)


def test_open_log_new_partition_adds_its_recovery_point(clean_data: Path) -> None:
    """A partition that did not exist joins the recovery points of its directory."""
    before = checkpoint(clean_data, RECOVERY_POINT_CHECKPOINT)
    with open_log(clean_data / "fresh-3") as log:
        log.append([Record(value=b"first")])
        assert TopicPartition("fresh", 3) == log.topic_partition
    after = checkpoint(clean_data, RECOVERY_POINT_CHECKPOINT)
    assert {**before, TopicPartition("fresh", 3): 1} == after
    assert (clean_data / CLEAN_SHUTDOWN_MARKER).is_file()
