"""`kafkalog recover`: what the next start of a manager does first, without the manager's work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from kafkalog.errors import LogOfflineError, NotALogError
from kafkalog.files.errors import storage_errors
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.conversion.data_directory import is_data_directory
from kafkalog.log.report import RecoveryReport
from kafkalog.manager.health import ManagerHealth
from kafkalog.manager.manager import LogManager
from kafkalog.manager_config import ManagerConfig
from kafkalog.model import TopicPartition

__all__ = ["recover", "write_recovery"]

# Neither retention nor the cleaner must run while the directories are open.
_SETTINGS = {"log.initial.task.delay.ms": str(2**40), "log.cleaner.enable": "false"}


def recover(directories: Sequence[Path]) -> ManagerHealth:
    """
    Open data directories for writing and close them in order; return what was found.

    Logs that were not closed in order are recovered, after the commit journal was applied to them.
    If the directories were closed in order, nothing changes.

    Raises:
        NotALogError: a path is not a data directory.
        LogLockedError: a writer has it open.
        LogOfflineError, LogStorageError: the disk refused; the rest was recovered.
    """
    filesystem = PosixFileSystem()
    for path in directories:
        with storage_errors(path, doing="opening"):
            facts = filesystem.stat(path.absolute())
            if facts is None or not is_data_directory(filesystem, path.absolute()):
                raise NotALogError(f"{path} is not a data directory", path=path)
    with LogManager(directories, ManagerConfig.from_properties(_SETTINGS)) as manager:
        health = manager.health()
    for directory in health.directories:
        if not directory.is_online:
            raise LogOfflineError(f"{directory.path} is offline: {directory.error}")
    return health


def write_recovery(output: TextIO, health: ManagerHealth, *, as_json: bool) -> None:
    """Write a line for each recovered partition and each fault, then the number of both."""
    for name, report in health.recoveries.items():
        if as_json:
            output.write(json.dumps(_recovered(name, report), separators=(",", ":")) + "\n")
        else:
            output.write(f"{name}: {report.summary()}\n")
    for fault in health.faults:
        if as_json:
            found = {"fault": fault.task, "of": str(fault.subject), "message": str(fault.error)}
            output.write(json.dumps(found, separators=(",", ":")) + "\n")
        else:
            output.write(f"{fault.task} of {fault.subject}: {fault.error}\n")
    if not as_json:
        output.write(
            f"{len(health.recoveries)} partitions recovered, {len(health.faults)} faults\n"
        )


def _recovered(name: TopicPartition, report: RecoveryReport) -> dict[str, Any]:
    return {
        "partition": str(name),
        "log_end_offset": report.log_end_offset,
        "summary": report.summary(),
        "corrupt_ranges": len(report.corrupt_ranges),
    }
