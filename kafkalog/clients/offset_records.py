"""Format of the committed positions in `__consumer_offsets`, byte for byte as Kafka's.

Key, version 0 or 1: group, topic, partition. Value: the offset that is read next, the leader epoch
of the last record (from version 3 on), a text of the client, the time of the commit. A null value
removes the position. Version 3 is written, which brokers of Kafka 2.1 and later read; versions 0 to
4 are read. Keys of other versions are group members and similar: the coordinator of a broker keeps
them, and kafkalog skips them.

Thread-safety: pure functions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog.errors import CorruptRecordError
from kafkalog.records.message_fields import FieldReader, plain_string

__all__ = [
    "CommittedOffset",
    "GroupPartition",
    "decode_key",
    "decode_value",
    "encode_key",
    "encode_value",
]

KEY_VERSION: Final = 1
VALUE_VERSION: Final = 3
FLEXIBLE_VERSION: Final = 4
NO_LEADER_EPOCH: Final = -1


class GroupPartition(NamedTuple):
    """A group, and the partition that it reads."""

    group: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """
    Committed position of a group in a partition.

    Attributes:
        offset: offset of the first record that was not processed.
        metadata: a text of the client.
        leader_epoch: leader epoch of the record before; None if unknown.
        commit_timestamp_ms: time of the commit; -1 for the time of the clock.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    commit_timestamp_ms: int = -1


def encode_key(where: GroupPartition) -> bytes:
    """Return the key of a position."""
    return (
        KEY_VERSION.to_bytes(2)
        + plain_string(where.group)
        + plain_string(where.topic)
        + where.partition.to_bytes(4, signed=True)
    )


def decode_key(key: bytes | None) -> GroupPartition | None:
    """
    Return the group and partition of a position; None for a key of another kind.

    Raises:
        CorruptRecordError: the key ends early.
    """
    reader = FieldReader(key, "the key of a committed offset")
    version = reader.int16()
    if not 0 <= version <= KEY_VERSION:
        return None
    return GroupPartition(reader.plain_string(), reader.plain_string(), reader.int32())


def encode_value(position: CommittedOffset) -> bytes:
    """Return the value of a position."""
    epoch = NO_LEADER_EPOCH if position.leader_epoch is None else position.leader_epoch
    return (
        VALUE_VERSION.to_bytes(2)
        + position.offset.to_bytes(8, signed=True)
        + epoch.to_bytes(4, signed=True)
        + plain_string(position.metadata)
        + position.commit_timestamp_ms.to_bytes(8, signed=True)
    )


def decode_value(value: bytes) -> CommittedOffset:
    """
    Return the position of a value.

    Raises:
        CorruptRecordError: the value ends early, or has a later version.
    """
    reader = FieldReader(value, "a committed offset")
    version = reader.int16()
    if not 0 <= version <= FLEXIBLE_VERSION:
        raise CorruptRecordError(f"a committed offset of version {version}")
    offset = reader.int64()
    epoch = reader.int32() if version >= VALUE_VERSION else NO_LEADER_EPOCH
    metadata = reader.string() if version >= FLEXIBLE_VERSION else reader.plain_string()
    committed_ms = reader.int64()
    return CommittedOffset(offset, metadata, None if epoch < 0 else epoch, committed_ms)
