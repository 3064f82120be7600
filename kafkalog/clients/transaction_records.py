"""The records of `__transaction_state`, byte for byte as Kafka's.

Key, version 0: the transactional id. Value: whose producer id it is, its epoch, how long it may
take, how far its transaction is, in which partitions, and when that was. A null value forgets it.
Version 0 is written, which brokers of Kafka 0.11 and later read; version 1, of the flexible kind,
is read too, with its tagged fields.

Transactions of version 2 (KIP-890) have an epoch each: a decision, and its markers, have the epoch
behind that of the data. In those of versions 0 and 1 all have the same. A record of version 1 says
which by a tagged field; those that are written here have a header for it, which brokers pass over.

Thread-safety: pure functions, immutable values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from typing import Final

from kafkalog.errors import CorruptRecordError
from kafkalog.model import TopicPartition
from kafkalog.records.message_fields import FieldReader, plain_string

__all__ = [
    "EPOCH_HEADERS",
    "TransactionRecord",
    "TransactionState",
    "decode_key",
    "decode_value",
    "encode_key",
    "encode_value",
]

FLEXIBLE_VERSION: Final = 1
# From this version of transactions on each of them has an epoch of its own.
EPOCH_EACH_VERSION: Final = 2
EPOCH_HEADERS: Final = (("transaction.version", b"2"),)

PREVIOUS_PRODUCER_ID_TAG: Final = 0
NEXT_PRODUCER_ID_TAG: Final = 1
TRANSACTION_VERSION_TAG: Final = 2


class TransactionState(IntEnum):
    """How far a transaction is; numbers as on disk."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def is_unfinished(self) -> bool:
        """Whether partitions may still lack their markers."""
        return self in _UNFINISHED


_UNFINISHED: Final = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.PREPARE_EPOCH_FENCE,
    }
)


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """
    What is known of a transactional id.

    Attributes:
        producer_id, producer_epoch: who writes under it.
        timeout_ms: how long one of its transactions may take.
        state: how far the present one is.
        partitions: where it wrote, sorted.
        last_update_ms: when this was noted.
        start_ms: when the transaction began, -1 where there is none.
        has_own_epochs: whether each transaction is known to have an epoch of its own.
        other_producer_ids: those that it had before, or is to have next, where a broker says so.
    """

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    last_update_ms: int = -1
    start_ms: int = -1
    has_own_epochs: bool = False
    other_producer_ids: tuple[int, ...] = ()


def encode_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id."""
    return bytes(2) + plain_string(transactional_id)


def decode_key(key: bytes | None) -> str | None:
    """
    Return the transactional id, None where the key is of another kind.

    Raises:
        CorruptRecordError: the key ends early.
    """
    reader = FieldReader(key, "the key of a transaction")
    return reader.plain_string() if reader.int16() == 0 else None


def encode_value(record: TransactionRecord) -> bytes:
    """Return the value of a transactional id."""
    parts = [
        bytes(2),
        record.producer_id.to_bytes(8, signed=True),
        record.producer_epoch.to_bytes(2, signed=True),
        record.timeout_ms.to_bytes(4, signed=True),
        record.state.to_bytes(1),
        _encode_partitions(record),
        record.last_update_ms.to_bytes(8, signed=True),
        record.start_ms.to_bytes(8, signed=True),
    ]
    return b"".join(parts)


def decode_value(value: bytes) -> TransactionRecord:
    """
    Return what a value says.

    Raises:
        CorruptRecordError: it ends early, or is of a version or a state from the future.
    """
    reader = FieldReader(value, "the value of a transaction")
    version = reader.int16()
    if not 0 <= version <= FLEXIBLE_VERSION:
        raise CorruptRecordError(f"the value of a transaction has version {version}")
    producer_id, epoch, timeout_ms = reader.int64(), reader.int16(), reader.int32()
    number = reader.int8()
    if number not in TransactionState.__members__.values():
        raise CorruptRecordError(f"a transaction in state {number}")
    read = _flexible_partitions if version == FLEXIBLE_VERSION else _plain_partitions
    partitions = tuple(sorted(read(reader)))
    last_update_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tags() if version == FLEXIBLE_VERSION else {}
    others = (_number(tags, tag, 8) for tag in (PREVIOUS_PRODUCER_ID_TAG, NEXT_PRODUCER_ID_TAG))
    return TransactionRecord(
        producer_id,
        epoch,
        timeout_ms,
        TransactionState(number),
        partitions,
        last_update_ms,
        start_ms,
        has_own_epochs=_number(tags, TRANSACTION_VERSION_TAG, 2) >= EPOCH_EACH_VERSION,
        other_producer_ids=tuple(each for each in others if each >= 0),
    )


def _number(tags: Mapping[int, bytes], tag: int, size: int) -> int:
    """Return the number that a tagged field holds, -1 where it is not there."""
    found = tags.get(tag)
    if found is None:
        return -1
    if len(found) != size:
        raise CorruptRecordError(
            f"the value of a transaction has {len(found)} bytes under tag {tag}, not {size}"
        )
    return int.from_bytes(found, signed=True)


def _encode_partitions(record: TransactionRecord) -> bytes:
    if record.state is TransactionState.EMPTY:
        return (-1).to_bytes(4, signed=True)
    topics = [
        (topic, [each.partition for each in group])
        for topic, group in groupby(record.partitions, lambda each: each.topic)
    ]
    parts = [len(topics).to_bytes(4)]
    for topic, numbers in topics:
        parts += [plain_string(topic), len(numbers).to_bytes(4)]
        parts += [number.to_bytes(4, signed=True) for number in numbers]
    return b"".join(parts)


def _plain_partitions(reader: FieldReader) -> list[TopicPartition]:
    def topic() -> list[TopicPartition]:
        name = reader.plain_string()
        return _named(name, reader.plain_array(reader.int32))

    return _flat(reader.plain_array(topic))


def _flexible_partitions(reader: FieldReader) -> list[TopicPartition]:
    def topic() -> list[TopicPartition]:
        name = reader.string()
        found = _named(name, reader.array(reader.int32))
        reader.skip_tags()
        return found

    return _flat(reader.nullable_array(topic))


def _named(topic: str, partitions: Iterable[int]) -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]


def _flat(topics: Iterable[list[TopicPartition]]) -> list[TopicPartition]:
    return [each for found in topics for each in found]
