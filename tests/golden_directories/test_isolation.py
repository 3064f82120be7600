"""Both isolation levels of brokers' logs equal their manifests, with any transaction index.

A broker whose `.txnindex` is cut or missing serves aborted records as committed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import Log, open_log
from kafkalog.files.names import FileKind
from tests.golden_directories.producer_files import (
    COMPACTED,
    PARTITIONS,
    files_of,
    identify,
    snapshots,
)
from tests.support.golden import CLEAN, UNCLEAN, Manifest, canonical_hash, copy_data_directory
from tests.support.golden_old import OldManifest, rendered
from tests.support.manual_time import ManualClock, ManualScheduler

DAMAGES = ["whole", "missing", "cut", "foreign"]
TRANSACTIONAL = [
    path
    for path in PARTITIONS
    if path.parent.parent.name == CLEAN and files_of(path, FileKind.TRANSACTION_INDEX)
]


def opened(directory: Path, *, read_only: bool) -> Log:
    """Open a broker's partition on manual time."""
    clock = ManualClock()
    return open_log(directory, read_only=read_only, clock=clock, scheduler=ManualScheduler(clock))


def spoil(directory: Path, damage: str) -> None:
    """Damage every transaction index of a partition."""
    paths = list(files_of(directory, FileKind.TRANSACTION_INDEX).values())
    for path, other in zip(paths, paths[1:] + paths[:1], strict=True):
        if damage == "missing":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(path.read_bytes()[:-20])
        elif damage == "foreign" and path != other:
            path.write_bytes(b"")


def test_transactional_partitions_exist() -> None:
    """The tests below have parameters."""
    assert len(TRANSACTIONAL) >= 4


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("directory", TRANSACTIONAL, ids=identify)
def test_read_committed_with_any_index_equals_the_manifest(
    directory: Path, damage: str, read_only: bool, tmp_path: Path
) -> None:
    """Count and hash, and the last stable offset."""
    if damage != "whole" and directory in COMPACTED:
        pytest.skip("what compaction took from a log its batches do not tell")
    fact = Manifest(CLEAN, directory.name).summary.read_committed
    assert fact is not None
    copy = copy_data_directory(CLEAN, tmp_path / "data") / directory.name
    spoil(copy, damage)
    with opened(copy, read_only=read_only) as log:
        assert fact.end_offset == log.last_stable_offset
        assert fact.data == canonical_hash(log.records(isolation="read_committed"))


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("has_snapshots", [True, False])
@pytest.mark.parametrize("damage", DAMAGES)
def test_read_committed_after_a_crash_equals_the_broker(
    damage: str, has_snapshots: bool, read_only: bool, tmp_path: Path
) -> None:
    """Both recovered; without the broker's snapshots the state is rebuilt from batches."""
    summary = Manifest(UNCLEAN, "u-txn-0").summary
    uncommitted, committed = summary.read_uncommitted, summary.read_committed
    assert uncommitted is not None
    assert committed is not None
    assert committed.end_offset < uncommitted.end_offset
    copy = copy_data_directory(UNCLEAN, tmp_path / "data") / "u-txn-0"
    spoil(copy, damage)
    if not has_snapshots:
        for path in files_of(copy, FileKind.SNAPSHOT).values():
            path.unlink()
    with opened(copy, read_only=read_only) as log:
        assert not log.recovery_report.clean
        assert (uncommitted.end_offset, committed.end_offset) == (
            log.high_watermark,
            log.last_stable_offset,
        )
        assert uncommitted.data == canonical_hash(log.records())
        assert committed.data == canonical_hash(log.records(isolation="read_committed"))


@pytest.mark.parametrize(
    "directory", [path for path in PARTITIONS if path.parent.name == "kafka-2.8"], ids=identify
)
def test_read_committed_of_kafka_2_8_equals_its_consumer(directory: Path) -> None:
    """The broker's own directory, opened read-only."""
    fact = OldManifest("kafka-2.8", directory.name).summary.consumer_committed
    if fact is None:
        pytest.skip("nobody consumed it")
    with opened(directory, read_only=True) as log:
        assert fact.end_offset == log.last_stable_offset
        assert fact.rendered == rendered(log.records(0, isolation="read_committed"))


@pytest.mark.parametrize("directory", TRANSACTIONAL, ids=identify)
def test_open_and_close_keep_a_brokers_last_snapshot(directory: Path, tmp_path: Path) -> None:
    """Nothing was appended, so the state is the broker's."""
    copy = copy_data_directory(CLEAN, tmp_path / "data") / directory.name
    before = snapshots(copy)
    with opened(copy, read_only=False) as log:
        end_offset = log.log_end_offset
    after = snapshots(copy)
    assert end_offset == max(after)
    if end_offset in before:
        assert before[end_offset] == after[end_offset]
