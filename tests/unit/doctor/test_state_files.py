"""Tests of the doctor's checks of identity, checkpoints, locks and shutdowns."""

from __future__ import annotations

import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from kafkalog import LogManager
from kafkalog.doctor.findings import Severity
from kafkalog.files.names import SYNC_JOURNAL, TOPIC_OVERRIDES
from kafkalog.files.posix import PosixFileSystem
from kafkalog.state.checkpoints import OffsetCheckpoint
from kafkalog.state.meta_properties import MetaProperties, write_meta_properties
from tests.support.doctor_fixtures import (
    checks,
    examined,
    healthy_directory,
    made_unclean,
    only,
)
from tests.support.logs import append_sized
from tests.support.manual_time import START_MS

DISK = PosixFileSystem()
HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def rewrite(checkpoint: Path, lines: list[str]) -> None:
    checkpoint.write_text("\n".join(["0", str(len(lines)), *lines, ""]))


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("meta.properties", Severity.ERROR),
        ("recovery-point-offset-checkpoint", Severity.WARNING),
        ("log-start-offset-checkpoint", Severity.ERROR),
        ("replication-offset-checkpoint", Severity.WARNING),
        ("cleaner-offset-checkpoint", Severity.WARNING),
        (".kafkalog_topics", Severity.ERROR),
        ("orders-0/partition.metadata", Severity.WARNING),
        ("orders-0/leader-epoch-checkpoint", Severity.WARNING),
    ],
)
def test_invalid_file_is_found(data: Path, name: str, severity: Severity) -> None:
    """With the invalid line, and the action of the next opening."""
    (data / name).write_text("version=1\nseven\n")
    finding = only(examined(data), "files.damaged")
    assert severity is finding.severity
    assert (data / name,) == finding.paths
    assert str(data / name) in finding.seen
    assert finding.remedy


def test_directory_of_a_manager_has_no_finding(tmp_path: Path) -> None:
    """All its files are known and present, with settings of topics."""
    directory = tmp_path / "data"
    with LogManager([directory]) as manager:
        manager.create_topic("orders", 2, {"retention.ms": "-1"})
        append_sized(manager.log("orders", 0), 120)
    assert (directory / TOPIC_OVERRIDES).exists()
    diagnosis = examined(directory)
    assert [] == checks(diagnosis)
    assert 2 == diagnosis.partition_count


def test_partition_that_cannot_be_read_is_an_error(data: Path) -> None:
    """A directory has the name of its segment."""
    segment = data / "orders-0" / f"{8:020d}.log"
    segment.unlink()
    segment.mkdir()
    diagnosis = examined(data)
    finding = next(each for each in diagnosis.findings if each.check == "files.damaged")
    assert Severity.ERROR is finding.severity
    assert (data / "orders-0",) == finding.paths


def test_missing_identity_is_noted_for_a_broker(data: Path) -> None:
    """A manager writes one."""
    (data / "meta.properties").unlink()
    finding = only(examined(data), "meta.properties")
    assert Severity.NOTE is finding.severity


def test_identity_of_a_broker_with_zookeeper_is_found(data: Path) -> None:
    """Kafka 4 refuses it."""
    meta = MetaProperties(version=0, node_id=1, cluster_id="c")
    write_meta_properties(DISK, data, meta, now_ms=START_MS)
    finding = only(examined(data), "meta.properties")
    assert Severity.WARNING is finding.severity
    assert "4.0" in finding.matters


def test_directories_of_two_nodes_are_found(tmp_path: Path) -> None:
    """The two values are named."""
    one = healthy_directory(tmp_path / "one", "orders-0", node_id=1)
    other = healthy_directory(tmp_path / "other", "orders-1", node_id=2)
    finding = only(examined(one, other), "meta.properties.agreement")
    assert Severity.ERROR is finding.severity
    assert "node.id differs: 1, 2" == finding.seen
    assert (one, other) == finding.paths


def test_copy_of_a_directory_is_found_twice(data: Path, tmp_path: Path) -> None:
    """By its id and by its partitions."""
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    diagnosis = examined(data, copy)
    assert ["meta.properties.agreement", "partitions.twice"] == checks(diagnosis)
    agreement, twice = diagnosis.findings
    assert "directory.id" in agreement.seen
    assert "orders-0 is in 2 directories" == twice.seen
    assert (data / "orders-0", copy / "orders-0") == twice.paths


def test_holder_of_the_lock_is_named_and_its_work_is_not_judged(data: Path) -> None:
    """A running writer has no marker, and files that are being deleted."""
    made_unclean(data)
    (data / "orders-0" / f"{0:020d}.log.deleted").write_bytes(b"")
    command = [sys.executable, "-c", HOLDER, str(data / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert b"locked\n" == holder.stdout.readline()
        finding = only(examined(data), "lock")
        holder.communicate(b"")
    assert Severity.NOTE is finding.severity
    assert f"process {holder.pid} has {data} locked" == finding.seen


@pytest.mark.parametrize(
    ("recovery_point", "expected"), [(None, "1.2 KiB"), (0, "1.2 KiB"), (8, "240 bytes")]
)
def test_logs_not_closed_are_found_with_the_recovery_size(
    data: Path, recovery_point: int | None, expected: str
) -> None:
    """From the segment of the recovery point on."""
    made_unclean(data)
    lines = [] if recovery_point is None else [f"orders 0 {recovery_point}"]
    rewrite(data / "recovery-point-offset-checkpoint", lines)
    finding = only(examined(data), "shutdown.unclean")
    assert Severity.WARNING is finding.severity
    assert f"reads {expected} again" in finding.matters
    assert (data / "orders-0",) == finding.paths


def test_sync_journal_is_a_known_file(data: Path) -> None:
    """A killed writer has left it."""
    made_unclean(data)
    (data / "orders-0" / SYNC_JOURNAL).write_bytes(bytes(32))
    only(examined(data), "shutdown.unclean")


def test_directory_without_logs_needs_no_marker(data: Path) -> None:
    """No log needs a recovery."""
    shutil.rmtree(data / "orders-0")
    rewrite(data / "recovery-point-offset-checkpoint", [])
    made_unclean(data)
    assert [] == checks(examined(data))


def test_lines_of_checkpoints_without_a_partition_are_noted(data: Path) -> None:
    """Three are named, the others are counted."""
    rewrite(
        data / "replication-offset-checkpoint",
        ["orders 0 10", *(f"gone {number} 3" for number in range(5))],
    )
    finding = only(examined(data), "checkpoints.orphans")
    assert Severity.NOTE is finding.severity
    assert (
        "replication-offset-checkpoint has 5 partitions that do not exist"
        " (gone-0, gone-1, gone-2 and 2 others)"
    ) == finding.seen


def test_log_that_ends_below_its_recovery_point_is_an_error(data: Path) -> None:
    """Durable data is missing: a segment was removed or truncated."""
    for path in (data / "orders-0").glob(f"{8:020d}.*"):
        path.unlink()
    finding = only(examined(data), "checkpoints.recovery_point")
    assert Severity.ERROR is finding.severity
    assert "orders-0 ends at offset 8, and everything below 10 was on the disk" == finding.seen


def test_log_that_ends_below_its_start_is_found(data: Path) -> None:
    """All of it would be removed."""
    rewrite(data / "log-start-offset-checkpoint", ["orders 0 11"])
    finding = only(examined(data), "checkpoints.log_start")
    assert Severity.WARNING is finding.severity
    assert "orders-0 ends at offset 10, below its start 11" == finding.seen


@pytest.mark.parametrize("name", ["replication-offset-checkpoint", "cleaner-offset-checkpoint"])
def test_other_checkpoints_beyond_the_log_end_are_noted(data: Path, name: str) -> None:
    """They are hints, and are lowered."""
    rewrite(data / name, ["orders 0 11"])
    finding = only(examined(data), "checkpoints.beyond_end")
    assert Severity.NOTE is finding.severity
    assert f"{name} has 11 for orders-0, which ends at 10" == finding.seen


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ],
)
def test_checkpoint_at_the_log_end_has_no_finding(data: Path, name: str) -> None:
    """Most checkpoints are there."""
    OffsetCheckpoint(DISK, data / name)
    rewrite(data / name, ["orders 0 10"])
    assert [] == checks(examined(data))


def test_log_end_is_found_before_a_preallocated_or_torn_tail(data: Path) -> None:
    """Zeros and garbage hold no batch; only headers of whole batches count."""
    segment = data / "orders-0" / f"{8:020d}.log"
    whole = segment.read_bytes()
    made_unclean(data)
    for tail in (bytes(500), b"garbage", whole[:61], whole[:100]):
        segment.write_bytes(whole + tail)
        only(examined(data), "shutdown.unclean")
    rewrite(data / "cleaner-offset-checkpoint", ["orders 0 11"])
    assert ["shutdown.unclean", "checkpoints.beyond_end"] == checks(examined(data))


def test_partition_that_a_broker_would_call_stray_is_noted(data: Path) -> None:
    """Only in a directory with an identity, which a broker might open."""
    (data / "orders-0" / "partition.metadata").unlink()
    finding = only(examined(data), "partition.metadata")
    assert Severity.NOTE is finding.severity
    assert (data / "orders-0",) == finding.paths
    (data / "meta.properties").unlink()
    assert ["meta.properties"] == checks(examined(data))


def test_partition_in_a_data_directory_is_examined_with_its_checkpoints(data: Path) -> None:
    """With the marker and the recovery point of the data directory."""
    assert [] == checks(examined(data / "orders-0"))
    made_unclean(data)
    rewrite(data / "recovery-point-offset-checkpoint", ["orders 0 8", "other 0 9"])
    finding = only(examined(data / "orders-0"), "shutdown.unclean")
    assert f"{data} has no .kafka_cleanshutdown" in finding.seen
    assert "reads 240 bytes again" in finding.matters


def test_copy_is_found_by_directory_id_only(data: Path, tmp_path: Path) -> None:
    """Two directories without an id are not equal."""
    other = healthy_directory(tmp_path / "other", "orders-1")
    for directory, identity in ((data, None), (other, None)):
        meta = MetaProperties(cluster_id="a-cluster", node_id=1, directory_id=identity)
        write_meta_properties(DISK, directory, meta, now_ms=START_MS)
    assert [] == checks(examined(data, other))
    identity = uuid.UUID(int=2**100)
    for directory in (data, other):
        meta = MetaProperties(cluster_id="a-cluster", node_id=1, directory_id=identity)
        write_meta_properties(DISK, directory, meta, now_ms=START_MS)
    only(examined(data, other), "meta.properties.agreement")


def test_examination_creates_no_lock_file(data: Path) -> None:
    """The directory may be read-only."""
    (data / ".lock").unlink()
    before = sorted(data.iterdir())
    assert [] == checks(examined(data))
    assert before == sorted(data.iterdir())
