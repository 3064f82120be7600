"""Model of a transaction of the sink: its name, staged files, the intent to publish them.

Everything is plain data: tasks send it to the driver pickled, the disk has it as JSON.

Thread-safety: everything here is immutable.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self
from uuid import uuid4

from kafkalog.errors import CorruptStateError
from kafkalog.layout import NO_TIMESTAMP
from kafkalog.model import TopicPartition

__all__ = [
    "Intent",
    "IntentEntry",
    "StagedFile",
    "TransactionId",
    "dumped",
    "loaded",
    "smallest_segment",
]

_FORMAT: Final = 1
# A staged file is renamed unless it is a very small segment; else it is copied. Copying takes the
# driver about 2.5 s a GiB, file after file; segments of 32 MiB instead of 1 GiB do not.
_SEGMENT_SHARE: Final = 32
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)


def smallest_segment(segment_bytes: int) -> int:
    """Return the size from which a file becomes a segment of a log that has others."""
    return segment_bytes // _SEGMENT_SHARE


@dataclass(frozen=True, slots=True)
class TransactionId:
    """
    Identity of a transaction.

    Attributes:
        app: its owner: a streaming query, an application, or this one write.
        version: number among the owner's transactions, rising; None if there is only this one.
    """

    app: str
    version: int | None = None

    @classmethod
    def of_query(cls, query_id: str, batch_id: int) -> Self:
        """Return the name of a micro-batch: the same when it is replayed."""
        return cls(f"query-{query_id}", batch_id)

    @classmethod
    def of_application(cls, app_id: str, version: int) -> Self:
        """Return the name of a batch write that an application numbers."""
        return cls(f"app-{app_id}", version)

    @classmethod
    def unique(cls) -> Self:
        """Return a name that no other write has."""
        return cls(f"write-{uuid4().hex}")

    def __str__(self) -> str:
        return self.app if self.version is None else f"{self.app}-{self.version}"

    @property
    def app_name(self) -> str:
        """The application in a form for file names."""
        if _FILE_NAME.fullmatch(self.app):
            return self.app
        return "x" + hashlib.blake2b(self.app.encode(), digest_size=16).hexdigest()

    @property
    def directory_name(self) -> str:
        """The name of its staging directory."""
        return self.app_name if self.version is None else f"{self.app_name}-{self.version}"


@dataclass(frozen=True, slots=True)
class StagedFile:
    """
    A file of batches that a task has written for one partition, and synced.

    Attributes:
        path: of the file.
        topic, partition: of its records.
        partition_count: number of partitions of the topic, existing or to be made, as the task saw
            it.
        record_count, size_bytes, batch_count: of the whole file.
        largest_batch_bytes: of one batch.
        min_timestamp, max_timestamp: in ms, of the records that have one; -1 if no record has.
        null_key_count: records without a key.
        task, sequence: order of several files of one partition.
    """

    path: str
    topic: str
    partition: int
    partition_count: int
    record_count: int
    size_bytes: int
    batch_count: int
    largest_batch_bytes: int
    min_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    null_key_count: int = 0
    task: int = 0
    sequence: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic and partition of its records."""
        return TopicPartition(self.topic, self.partition)

    @property
    def order(self) -> tuple[str, int, int, int, str]:
        """The sort key of files."""
        return self.topic, self.partition, self.task, self.sequence, self.path


@dataclass(frozen=True, slots=True)
class IntentEntry:
    """
    The part of one staged file to publish, and its log.

    Attributes:
        path: the staged file.
        topic, partition: the log.
        base_offset: of the first record.
        record_count: number of records.
        position: start of the part in the file: after the published batches.
    """

    path: str
    topic: str
    partition: int
    base_offset: int
    record_count: int
    position: int = 0

    @property
    def topic_partition(self) -> TopicPartition:
        """The log."""
        return TopicPartition(self.topic, self.partition)

    @property
    def end_offset(self) -> int:
        """One above the last offset."""
        return self.base_offset + self.record_count


@dataclass(frozen=True, slots=True)
class Intent:
    """
    Intent to publish a transaction: once this is on the disk, the transaction is committed.

    Attributes:
        transaction: its identity.
        epoch: of the sink that wrote it.
        created_ms: time of its creation.
        entries: the parts to publish, in this order.
        emptied: partitions whose older records are deleted, each with the offset below which they
            are.
        applied: how many of `partitions`, from the first on, are complete. Later changes of those,
            such as compaction, retention or truncation, do not matter to the sink.
    """

    transaction: TransactionId
    epoch: int
    created_ms: int
    entries: tuple[IntentEntry, ...]
    emptied: tuple[tuple[str, int, int], ...] = ()
    applied: int = 0

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The logs that it changes, each once."""
        emptied = (TopicPartition(topic, partition) for topic, partition, _ in self.emptied)
        return tuple(dict.fromkeys([*(each.topic_partition for each in self.entries), *emptied]))

    def entries_of(self, partition: TopicPartition) -> list[IntentEntry]:
        """Return the entries of one log."""
        return [entry for entry in self.entries if entry.topic_partition == partition]

    def moved(self, entry: IntentEntry, moved: IntentEntry) -> Intent:
        """Return a copy with one entry replaced by another."""
        return replace(
            self, entries=tuple(moved if each is entry else each for each in self.entries)
        )

    def ranges(self) -> list[dict[str, Any]]:
        """Return the offsets of each log, for people and the ledger."""
        found: dict[TopicPartition, list[int]] = {}
        for entry in self.entries:
            span = found.setdefault(entry.topic_partition, [entry.base_offset, 0])
            span[1] = entry.end_offset
        return [
            {"topic": name.topic, "partition": name.partition, "start": start, "end": end}
            for name, (start, end) in found.items()
        ]

    def to_json(self) -> bytes:
        """Return its form on the disk."""
        return _dumped({"format": _FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: bytes, where: str) -> Intent:
        """
        Parse an intent.

        Raises:
            CorruptStateError: the text is not an intent.
        """
        content = loaded(text, where)
        try:
            return cls(
                TransactionId(**content["transaction"]),
                int(content["epoch"]),
                int(content["created_ms"]),
                tuple(IntentEntry(**entry) for entry in content["entries"]),
                tuple(
                    (str(topic), int(number), int(end)) for topic, number, end in content["emptied"]
                ),
                # Releases before 0.2 did not write it.
                int(content.get("applied", 0)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptStateError(f"{where} is damaged: {error!r}", path=where) from error


def loaded(text: bytes, where: str) -> Mapping[str, Any]:
    """
    Parse a file of JSON in a known format.

    Raises:
        CorruptStateError: the text is not such a file.
    """
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptStateError(f"{where} is damaged: {error}", path=where) from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise CorruptStateError(f"{where} is of no format that is known here", path=where)
    return content


def dumped(**content: Any) -> bytes:
    """Return a file of JSON in the present format."""
    return _dumped({"format": _FORMAT, **content})


def _dumped(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":"), sort_keys=True).encode()
