"""Directories to be examined, and findings of an examination."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from kafkalog import LogConfig
from kafkalog.doctor.examine import examine_directories
from kafkalog.doctor.findings import Diagnosis, Finding, Severity
from kafkalog.files.names import (
    CLEAN_SHUTDOWN_MARKER,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.state.meta_properties import MetaProperties, write_meta_properties
from kafkalog.state.partition_metadata import write_partition_metadata
from tests.support.logs import append_sized, manual_log
from tests.support.machines import MadeUpMachine
from tests.support.manual_time import START_MS, ManualClock

__all__ = ["checks", "examined", "healthy_directory", "judged", "made_unclean", "only"]

DISK = PosixFileSystem()


def healthy_directory(path: Path, *partitions: str, node_id: int = 1) -> Path:
    """Make a data directory as a broker would, with ten records in each partition, closed."""
    path.mkdir()
    _fill(path, partitions or ("orders-0",), node_id)
    return path


def _fill(path: Path, partitions: tuple[str, ...], node_id: int) -> None:
    meta = MetaProperties(cluster_id="a-cluster", node_id=node_id, directory_id=uuid.uuid4())
    write_meta_properties(DISK, path, meta, now_ms=START_MS)
    for name in (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT):
        (path / name).write_text("0\n0\n")
    for partition in partitions:
        with manual_log(path / partition, segment_bytes=1000) as log:
            for _ in range(10):
                append_sized(log, 120)
        topic_id = uuid.uuid5(uuid.NAMESPACE_URL, partition.rpartition("-")[0])
        write_partition_metadata(DISK, path / partition, topic_id)


def made_unclean(directory: Path) -> Path:
    """Take away the marker of a clean shutdown."""
    (directory / CLEAN_SHUTDOWN_MARKER).unlink()
    return directory


def examined(
    *directories: Path,
    machine: MadeUpMachine | None = None,
    now_ms: int = START_MS,
    config: LogConfig | None = None,
    age_files: bool = True,
) -> Diagnosis:
    """Examine directories, whose files are made a second old before, on a made-up machine."""
    if age_files:
        for directory in directories:
            for path in directory.rglob("*"):
                os.utime(path, (START_MS / 1000 - 1, START_MS / 1000 - 1))
    return examine_directories(
        directories,
        config=config,
        machine=MadeUpMachine() if machine is None else machine,
        clock=ManualClock(now_ms),
    )


def checks(diagnosis: Diagnosis) -> list[str]:
    """Return the names of the checks that found something."""
    return [finding.check for finding in diagnosis.findings]


def only(diagnosis: Diagnosis, check: str) -> Finding:
    """Return the one finding of a diagnosis, which must be of that check and report everything."""
    assert [check] == checks(diagnosis), diagnosis.findings
    finding = diagnosis.findings[0]
    assert finding.seen
    assert finding.matters
    return finding


def judged(diagnosis: Diagnosis, check: str, severity: Severity | None) -> Finding | None:
    """Return the one finding, of that severity; where that is None there must be no finding."""
    if severity is None:
        assert () == diagnosis.findings
        return None
    finding = only(diagnosis, check)
    assert severity is finding.severity
    return finding
