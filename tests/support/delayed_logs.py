"""Logs on a simulated disk with delayed records, without a manager and a journal."""

from __future__ import annotations

from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

from kafkalog._core.murmur2 import partition_of as partition_of_key
from kafkalog._engine.delayed_records import DelayedRecords
from kafkalog._engine.delayed_send import DelayedSend, DelayedTopic
from kafkalog.log.delayed_appends import DelayedAppends
from kafkalog.log.log import partition_of
from kafkalog.state.commit_journal import PartitionName
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS
from tests.support.simulated_disk import SimulatedDisk

__all__ = ["JOURNAL", "DelayedLogs", "key_of"]

DIRECTORY = Path("/disks/a")
JOURNAL = "the journal of the logs"


def key_of(partition: int, partition_count: int) -> bytes:
    """Return a key of a partition."""
    return next(
        key
        for number in count()
        if partition_of_key(key := b"key %d" % number, partition_count) == partition
    )


class DelayedLogs:
    """
    The logs of a topic `orders`, each of which takes delayed records.

    Attributes:
        logs: by partition.
        records: the delayed records of each log.
        topic: gives records to the logs.
        keys: a key of each partition.
    """

    def __init__(self, partition_count: int = 3, journals: tuple[str, ...] = (), **settings: Any):
        disk = SimulatedDisk()
        disk.make_durable(DIRECTORY)
        self.logs = [
            manual_log(DIRECTORY / f"orders-{each}", filesystem=disk, **settings)
            for each in range(partition_count)
        ]
        self.keys = [key_of(each, partition_count) for each in range(partition_count)]
        self.topic = DelayedTopic(partition_count)
        self.records: list[DelayedRecords] = []
        for partition, log in enumerate(self.logs):
            log.flush()
            make_name = partial(PartitionName, log.directory.name, UUID(int=partition))
            journal = journals[partition] if journals else JOURNAL
            records = self.appends(partition).begin(log, make_name, journal)
            self.records.append(records)
            self.topic.set_log(partition, records)

    def appends(self, partition: int) -> DelayedAppends:
        """Return what appends the records of a log."""
        return partition_of(self.logs[partition]).delayed

    def accept(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamp_ms: int = START_MS,
    ) -> DelayedSend | int | None:
        """Give records to the logs."""
        return self.topic.accept(keys, values, timestamp_ms, START_MS, [])

    def send(self, *texts: str, partition: int = 0) -> DelayedSend:
        """Give texts to a log, which takes them."""
        values: list[bytes | None] = [text.encode() for text in texts]
        found = self.accept([self.keys[partition]] * len(texts), values)
        assert isinstance(found, DelayedSend)
        return found

    def counts(self) -> list[int]:
        """Return the number of records that each log has to append."""
        return [len(each) for each in self.records]

    def values(self, partition: int = 0) -> list[str]:
        """Return the texts of a log."""
        return [(each.value or b"").decode() for each in self.logs[partition].records()]

    def close(self) -> None:
        """Close the logs."""
        for log in self.logs:
            log.close()
