"""Fields of the records of Kafka's internal topics, under the names of Kafka's message schemas.

Decoded are committed positions of `__consumer_offsets` and transactions of `__transaction_state`,
in the form of Kafka's own tools: `{"type": 1, "data": {...}}` for a key, `{"version": 3, "data":
{...}}` for a value. Group members, share groups and cluster metadata are not decoded.

Thread-safety: pure functions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kafkalog.clients import offset_records, transaction_records
from kafkalog.errors import CorruptRecordError

__all__ = ["InternalRecord", "decode_internal"]

_VERSION_SIZE = 2


class InternalRecord(NamedTuple):
    """
    Fields of a record of an internal topic.

    Attributes:
        key: type and data of the key.
        value: version and data of the value; None for a tombstone.
    """

    key: dict[str, Any]
    value: dict[str, Any] | None


def decode_internal(topic: str, key: bytes | None, value: bytes | None) -> InternalRecord | None:
    """Return the fields of a record; None if its kind is not decoded, or it is damaged."""
    try:
        if topic == "__consumer_offsets":
            return _decode_offset(key, value)
        if topic == "__transaction_state":
            return _decode_transaction(key, value)
    except CorruptRecordError:
        return None
    return None


def _decode_offset(key: bytes | None, value: bytes | None) -> InternalRecord | None:
    where = offset_records.decode_key(key)
    if where is None or key is None:
        return None
    fields = {"group": where.group, "topic": where.topic, "partition": where.partition}
    data = None
    if value is not None:
        position = offset_records.decode_value(value)
        data = {
            "offset": position.offset,
            "leaderEpoch": -1 if position.leader_epoch is None else position.leader_epoch,
            "metadata": position.metadata,
            "commitTimestamp": position.commit_timestamp_ms,
        }
    return InternalRecord({"type": _version(key), "data": fields}, _versioned(value, data))


def _decode_transaction(key: bytes | None, value: bytes | None) -> InternalRecord | None:
    transactional_id = transaction_records.decode_key(key)
    if transactional_id is None or key is None:
        return None
    data = None
    if value is not None:
        found = transaction_records.decode_value(value)
        topics: dict[str, list[int]] = {}
        for topic, partition in found.partitions:
            topics.setdefault(topic, []).append(partition)
        data = {
            "producerId": found.producer_id,
            "producerEpoch": found.producer_epoch,
            "transactionTimeoutMs": found.timeout_ms,
            "transactionStatus": int(found.state),
            "transactionPartitions": [
                {"topic": topic, "partitionIds": numbers} for topic, numbers in topics.items()
            ],
            "transactionLastUpdateTimestampMs": found.last_update_ms,
            "transactionStartTimestampMs": found.start_ms,
        }
    fields = {"transactionalId": transactional_id}
    return InternalRecord({"type": _version(key), "data": fields}, _versioned(value, data))


def _version(data: bytes) -> int:
    return int.from_bytes(data[:_VERSION_SIZE])


def _versioned(value: bytes | None, data: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if value is None else {"version": _version(value), "data": data}
