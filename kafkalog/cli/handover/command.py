"""`kafkalog lower-epochs`: no leader epoch above that of the controller that leads next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from kafkalog.errors import ConfigError, LogOfflineError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.conversion.data_directory import is_data_directory
from kafkalog.log.opening import open_log
from kafkalog.manager.manager import LogManager
from kafkalog.manager_config import ManagerConfig
from kafkalog.model import LoweredEpochs

__all__ = ["lower_epochs", "write_lowered"]

# Neither retention nor the cleaner must run while the directories are open.
_SETTINGS = {"log.initial.task.delay.ms": str(2**40), "log.cleaner.enable": "false"}


def lower_epochs(directories: Sequence[Path], highest: int) -> LoweredEpochs:
    """
    Lower every leader epoch above `highest` in data directories, or in one partition directory.

    Raises:
        ConfigError: `highest` is negative, or a partition is given together with other directories.
        NotALogError: a path is neither a data directory nor a log.
        LogLockedError: a writer has it open.
        LogOfflineError, LogStorageError: the disk refused; some of it may be done.
    """
    if highest < 0:
        raise ConfigError(f"the highest leader epoch must be 0 or more, got {highest}")
    filesystem = PosixFileSystem()
    are_data = [_is_data_directory(filesystem, path.absolute()) for path in directories]
    if all(are_data):
        with LogManager(directories, ManagerConfig.from_properties(_SETTINGS)) as manager:
            health = manager.health()
            if offline := [each for each in health.directories if not each.is_online]:
                raise LogOfflineError(f"{offline[0].path} is offline: nothing was changed")
            return manager.lower_leader_epochs(highest)
    if len(directories) > 1:
        raise ConfigError("several paths must all be data directories, got a partition directory")
    with open_log(directories[0], create=False) as log:
        count = log.lower_leader_epochs(highest)
    return LoweredEpochs(int(count > 0), count, 0)


def write_lowered(output: TextIO, lowered: LoweredEpochs, *, as_json: bool) -> None:
    """Write what was changed as one line."""
    if as_json:
        output.write(json.dumps(lowered._asdict(), separators=(",", ":")) + "\n")
        return
    output.write(
        f"lowered the leader epochs of {lowered.batches:,} batches in {lowered.partitions}"
        f" partitions; {lowered.positions} positions of groups were committed again\n"
    )


def _is_data_directory(filesystem: FileSystem, directory: Path) -> bool:
    with storage_errors(directory, doing="opening"):
        facts = filesystem.stat(directory)
        return facts is not None and facts.is_directory and is_data_directory(filesystem, directory)
