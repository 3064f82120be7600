"""`examine_directories`: all checks, over directories and their machine.

Nothing is changed and no lock is taken; a writer may run at the same time. A new check goes into
the table below and gets a test.
"""

from __future__ import annotations

from typing import Final

from kafkalog.clock import Clock, SystemClock
from kafkalog.config import LogConfig
from kafkalog.doctor import directory_checks, disks, kernel, limits, state_files
from kafkalog.doctor.check_context import Check, CheckContext
from kafkalog.doctor.findings import Diagnosis, Finding
from kafkalog.doctor.handover import HandOver, examine_handover
from kafkalog.doctor.losses import examine_losses
from kafkalog.doctor.survey import survey_directory
from kafkalog.files.directories import Paths, as_paths
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.machine import LocalMachine, Machine
from kafkalog.files.posix import PosixFileSystem

__all__ = ["CHECKS", "examine_directories"]

CHECKS: Final[tuple[Check, ...]] = (
    kernel.check_kernel,
    kernel.check_background_threshold,
    kernel.check_dirty_limit,
    kernel.check_expiry,
    kernel.check_writeback_interval,
    kernel.check_laptop_mode,
    kernel.check_swapping,
    limits.check_descriptors,
    limits.check_mappings,
    disks.check_file_system,
    disks.check_mount_options,
    disks.check_free_space,
    disks.check_inodes,
    directory_checks.check_clock,
    directory_checks.check_owners,
    state_files.check_damaged_files,
    state_files.check_identity,
    state_files.check_agreement,
    state_files.check_lock,
    state_files.check_shutdown,
    state_files.check_orphans,
    state_files.check_ends,
    state_files.check_partition_metadata,
    state_files.check_topic_ids,
    directory_checks.check_unfinished_work,
    directory_checks.check_broken_bytes,
    directory_checks.check_directory_states,
    directory_checks.check_collisions,
    directory_checks.check_unknown_files,
    directory_checks.check_moves,
    directory_checks.check_journal,
    directory_checks.check_links,
    directory_checks.check_indexes,
)


def examine_directories(
    directories: Paths,
    *,
    config: LogConfig | None = None,
    machine: Machine | None = None,
    filesystem: FileSystem | None = None,
    clock: Clock | None = None,
    handover: HandOver | None = None,
) -> Diagnosis:
    """
    Check data directories, or single partition directories, and their machine.

    >>> diagnosis = examine_directories(["/data"])
    >>> [finding.check for finding in diagnosis.findings]
    ['vm.swappiness']

    Args:
        directories: one path, or the paths that one manager or broker opens together. They are only
            read.
        config: settings of the logs, for their needs of the machine; the defaults if None.
        machine: the machine; this one if None.
        filesystem: the disk; this machine's if None.
        clock: source of time; this machine's if None.
        handover: the broker that takes the directories over; all batches are then read. None for no
            such broker.

    Raises:
        NotALogError: a path is neither a data directory nor a partition directory.
        LogStorageError: one of the directories cannot be read.
    """
    clock = SystemClock() if clock is None else clock
    filesystem = PosixFileSystem() if filesystem is None else filesystem
    paths = as_paths(directories)
    context = CheckContext(
        machine=LocalMachine() if machine is None else machine,
        surveys=tuple(survey_directory(filesystem, path, clock) for path in paths),
        config=LogConfig() if config is None else config,
        now_ms=clock.now_ms(),
    )
    findings: list[Finding] = [finding for check in CHECKS for finding in check(context)]
    findings += examine_losses(context, filesystem, clock)
    if handover is not None:
        findings += examine_handover(context, filesystem, handover)
    findings.sort(key=lambda finding: -finding.severity)
    logs = [partition.live_sizes() for _survey, partition in context.partitions()]
    return Diagnosis(
        directories=paths,
        partition_count=len(logs),
        segment_count=sum(map(len, logs)),
        log_bytes=sum(sum(sizes.values()) for sizes in logs),
        findings=tuple(findings),
        unseen=tuple(context.unseen),
    )
