"""`kafkalog recover`: what the next start of a manager does first, without the manager's work."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from kafkalog.errors import LogOfflineError, NotALogError
from kafkalog.files.errors import storage_errors
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.conversion.data_directory import is_data_directory
from kafkalog.manager.health import ManagerHealth
from kafkalog.manager.manager import LogManager
from kafkalog.manager.recovery import RecoveryProgress
from kafkalog.manager_config import ManagerConfig

__all__ = ["DirectoryRecovery", "recover", "write_recovery"]

# Neither retention nor the cleaner must run while the directories are open.
_SETTINGS = {"log.initial.task.delay.ms": str(2**40), "log.cleaner.enable": "false"}


class DirectoryRecovery(NamedTuple):
    """
    Result of the command.

    Attributes:
        progress: a value for each partition that was not closed in order, by name.
        health: health of the manager before it was closed.
    """

    progress: tuple[RecoveryProgress, ...]
    health: ManagerHealth

    @property
    def found_problems(self) -> bool:
        """True if something could not be recovered, or is damaged. Slow disks do not count."""
        return bool(self.health.faults or self.health.damage)


def recover(directories: Sequence[Path]) -> DirectoryRecovery:
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
    found: list[RecoveryProgress] = []
    config = ManagerConfig.from_properties(_SETTINGS)
    with LogManager(directories, config, on_progress=found.append) as manager:
        health = manager.health()
    for directory in health.directories:
        if not directory.is_online:
            raise LogOfflineError(f"{directory.path} is offline: {directory.error}")
    found.sort(key=lambda each: each.topic_partition)
    return DirectoryRecovery(tuple(found), health)


def write_recovery(output: TextIO, recovery: DirectoryRecovery, *, as_json: bool) -> None:
    """Write a line for each recovered partition and each fault, then the number of both."""
    for each in recovery.progress:
        if as_json:
            output.write(json.dumps(_as_dict(each), separators=(",", ":")) + "\n")
        else:
            result = str(each.error) if each.report is None else each.report.summary()
            output.write(f"{each.topic_partition}: {result}\n")
    faults = recovery.health.faults
    for fault in faults:
        if as_json:
            found = {"fault": fault.task, "of": str(fault.subject), "message": str(fault.error)}
            output.write(json.dumps(found, separators=(",", ":")) + "\n")
        else:
            output.write(f"{fault.task} of {fault.subject}: {fault.error}\n")
    if not as_json:
        count = sum(each.report is not None for each in recovery.progress)
        output.write(f"{count} partitions recovered, {len(faults)} faults\n")


def _as_dict(progress: RecoveryProgress) -> dict[str, Any]:
    name, report = str(progress.topic_partition), progress.report
    if report is None:
        return {"partition": name, "error": str(progress.error)}
    return {
        "partition": name,
        "log_end_offset": report.log_end_offset,
        "summary": report.summary(),
        "corrupt_ranges": len(report.corrupt_ranges),
    }
