"""Partitions opened one by one, as the source of producers and consumers: no manager around them.

Thread-safety: as the logs; topics are made by one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from random import Random
from typing import Any

from kafkalog import FileSystem, Log, LogConfig, open_log
from kafkalog.clients.clients import Clients
from kafkalog.clients.internal_topics import InternalTopicSettings
from kafkalog.errors import KafkaLogError
from kafkalog.manager.group_commit import GroupCommitter
from tests.support.manual_time import ManualClock, ManualScheduler

__all__ = ["Logs"]


class Logs:
    """
    The partitions of a directory.

    Args:
        directory: where they are.
        config: of topics that are made without settings.
        filesystem: the disk.
        read_only: whether they are opened so.

    Attributes:
        clock, scheduler: what moves them.
    """

    def __init__(
        self,
        directory: Path,
        *,
        config: LogConfig | None = None,
        filesystem: FileSystem | None = None,
        read_only: bool = False,
        clock: ManualClock | None = None,
    ) -> None:
        self.directory = directory
        self.clock = ManualClock() if clock is None else clock
        self.scheduler = ManualScheduler(self.clock)
        self._config = config or LogConfig(message_timestamp_after_max_ms=2**63 - 1)
        self._configs: dict[str, LogConfig] = {}
        self._filesystem = filesystem
        self._read_only = read_only
        self._lock = threading.Lock()
        self._random = Random(5)
        self._partitions: dict[str, set[int]] = {}
        self._logs: dict[tuple[str, int], Log] = {}
        self._committer = GroupCommitter(1)

    def clients(self, **arguments: Any) -> Clients:
        """Return what makes producers and consumers of these logs, on manual time."""
        arguments.setdefault("clock", self.clock)
        arguments.setdefault("scheduler", self.scheduler)
        arguments.setdefault("random", self._random)
        # Tests look at partition 0 of these; those of placement ask for more.
        arguments.setdefault("internal_topics", InternalTopicSettings(1, 1))
        return Clients(self, **arguments)

    def create_topic(
        self, topic: str, partition_count: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        self._partitions[topic] = set(range(partition_count))
        self._configs[topic] = self._config.with_overrides(dict(config or {}))

    def create_partition(self, topic: str, partition: int) -> None:
        self._partitions[topic].add(partition)

    delayed_commits = None

    def commit(self, logs: Collection[Log]) -> dict[Log, KafkaLogError]:
        return self._committer.commit(logs)

    def has_files(self, topic: str, partition: int) -> bool:
        return True

    def take(self, topic: str, *partitions: int) -> None:
        """Take in partitions that are there already."""
        self._partitions.setdefault(topic, set()).update(partitions)
        self._configs.setdefault(topic, self._config)

    def topics(self) -> dict[str, tuple[int, ...]]:
        return {topic: tuple(sorted(numbers)) for topic, numbers in self._partitions.items()}

    def log(self, topic: str, partition: int) -> Log:
        if partition not in self._partitions.get(topic, ()):
            raise LookupError(f"no {topic}-{partition}")
        with self._lock:
            found = self._logs.get((topic, partition))
            if found is None or found.is_closed:
                found = self._logs[topic, partition] = open_log(
                    self.directory / f"{topic}-{partition}",
                    config=self._configs[topic],
                    clock=self.clock,
                    scheduler=self.scheduler,
                    filesystem=self._filesystem,
                    read_only=self._read_only,
                )
            return found

    def opened(self) -> list[Log]:
        """Return the logs that were opened."""
        return list(self._logs.values())

    def close(self) -> None:
        """Close the logs that are open; `log` opens them again."""
        for log in self._logs.values():
            log.close()
