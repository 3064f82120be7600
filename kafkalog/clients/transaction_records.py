"""Format of the records of `__transaction_state`, byte for byte as Kafka's.

Key, version 0: the transactional id. Value: producer id, epoch, timeout, state of the transaction,
its partitions, and times. A null value removes the id. Version 0 is written, which brokers of Kafka
0.11 and later read; version 1, in the flexible encoding, is read too, with its tagged fields.

Transactions of version 2 (KIP-890) have separate epochs: a decision and its markers have the epoch
after that of the data. In versions 0 and 1 both have the same epoch. A record of version 1 has the
version of transactions in a tagged field; records that kafkalog writes have a header for it, which
brokers ignore.

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
# From this version of transactions on each transaction has a separate epoch.
EPOCH_EACH_VERSION: Final = 2
EPOCH_HEADERS: Final = (("transaction.version", b"2"),)

PREVIOUS_PRODUCER_ID_TAG: Final = 0
NEXT_PRODUCER_ID_TAG: Final = 1
TRANSACTION_VERSION_TAG: Final = 2


class TransactionState(IntEnum):
    """State of a transaction; numbers as on disk."""

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
        """Return whether partitions may still need their markers."""
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
    State of a transactional id.

    Attributes:
        producer_id, producer_epoch: identity of its batches.
        timeout_ms: longest duration of a transaction.
        state: state of the current transaction.
        partitions: partitions of the transaction, sorted.
        last_update_ms: time of this record.
        start_ms: start of the transaction; -1 if none is open.
        has_own_epochs: whether each transaction is known to have a separate epoch.
        other_producer_ids: previous and next producer ids, in records of a broker.
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
    Return the transactional id; None for a key of another kind.

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
    Return the state of a value.

    Raises:
        CorruptRecordError: the value ends early, or has a later version or an unknown state.
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
    """Return the number of a tagged field; -1 if the field is missing."""
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
