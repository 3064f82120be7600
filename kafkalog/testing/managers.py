"""Managers of a test: opened on one disk with faults, killed, cut off from power, and reopened.

Thread-safety: one thread.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from kafkalog.closing import ClosingContextManager
from kafkalog.errors import KafkaLogError
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.manager.manager import LogManager
from kafkalog.manager_config import ManagerConfig
from kafkalog.testing.faults import Faults
from kafkalog.testing.faulty_disk import FaultyDisk
from kafkalog.testing.faulty_filesystem import FaultyFileSystem
from kafkalog.testing.manual_time import ManualTime

__all__ = ["ManagerFactory"]


@dataclass(frozen=True, slots=True)
class _OpenedManager:
    """Arguments of a manager, and its file system."""

    directories: tuple[str, ...]
    config: ManagerConfig
    filesystem: FaultyFileSystem


class ManagerFactory(ClosingContextManager):
    """
    Managers on one disk of a test, with a time that the test moves.

    >>> with ManagerFactory(tmp) as managers:
    ...     manager = managers.open()
    ...     manager.create_topic("orders")
    ...     info = manager.log("orders").append([Record(value=b"paid")], wait="durable")
    ...     managers.cut_power()
    ...     assert managers.reopen(manager).log("orders").log_end_offset == 1

    Args:
        root: directory in which the data directories are made.
        time: time of all managers; a new one if None.
        config: settings of managers that are opened without others; Kafka's defaults if None.

    Attributes:
        time: time of all managers.
        faults: faults of the disk.
    """

    def __init__(
        self, root: Path, time: ManualTime | None = None, config: ManagerConfig | None = None
    ) -> None:
        self.time = ManualTime() if time is None else time
        self._root = Path(root)
        self._config = ManagerConfig() if config is None else config
        self._filesystem = PosixFileSystem()
        self._disk = FaultyDisk()
        self.faults = Faults(self._root, self._disk, self._filesystem)
        self._opened: dict[LogManager, _OpenedManager] = {}

    def open(self, *directories: str, config: ManagerConfig | None = None) -> LogManager:
        """
        Open a manager.

        Args:
            directories: names of its data directories; "data" without any.
            config: its settings; those of the factory if None.

        Raises:
            LogLockedError: another manager has one of the directories open.
            KafkaLogError: as for `LogManager`.
        """
        filesystem = FaultyFileSystem(self._disk, self._filesystem)
        opened = _OpenedManager(directories or ("data",), config or self._config, filesystem)
        manager = LogManager(
            [self._root / each for each in opened.directories],
            opened.config,
            clock=self.time,
            scheduler=self.time.scheduler,
            filesystem=cast("FileSystem", filesystem),
        )
        self._opened[manager] = opened
        return manager

    def kill(self, manager: LogManager) -> None:
        """
        End a manager as a kill of its process does: nothing more is written.

        Everything that was written is there for the next manager, which recovers the logs.
        Undelivered records of producers fail. No effect on a closed manager.

        Raises:
            ValueError: this factory has not opened the manager.
        """
        self._opened_of(manager).filesystem.turn_off()
        # Locks, descriptors and mappings are released, as at the end of a process.
        with suppress(KafkaLogError):
            manager.close()

    def cut_power(self) -> None:
        """Kill all managers, and take from their files what was not synced."""
        for manager in self._opened:
            self.kill(manager)
        self._disk.cut_power(self._root)

    def reopen(self, manager: LogManager) -> LogManager:
        """
        Open a manager on the directories, and with the settings, of another one.

        Args:
            manager: a manager of this factory; closed in order if it is open.

        Raises:
            ValueError: this factory has not opened the manager.
            KafkaLogError: as for `open`.
        """
        opened = self._opened_of(manager)
        manager.close()
        return self.open(*opened.directories, config=opened.config)

    def close(self) -> None:
        """
        Close all managers in order.

        Raises:
            KafkaLogError: a manager could not be closed, without a fault of the disk before.
        """
        errors = []
        for manager in self._opened:
            try:
                manager.close()
            except KafkaLogError as error:
                errors.append(error)
        if errors and not self._disk.has_failed:
            raise errors[0]

    def _opened_of(self, manager: LogManager) -> _OpenedManager:
        found = self._opened.get(manager)
        if found is None:
            raise ValueError(f"manager must be one of this factory, got {manager!r}")
        return found
