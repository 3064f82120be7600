"""Control records: transaction markers, and what a KRaft quorum writes into its log.

A control record's key is `i16 version, i16 type` and may be longer. Its value belongs to the type:
fixed fields for the end of a transaction, a message of Kafka's flexible format for the rest
(arrays and strings led by an unsigned varint of size + 1, tagged fields at the end of each
structure, which are skipped).

Invariants: nothing is read past the end, nothing larger than the value is allocated; what cannot
be decoded raises CorruptRecordError. Bytes after the fields of the version are ignored, as a broker
ignores them. Pure functions, safe in any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from kafkalog._core.builder import BatchBuilder
from kafkalog.errors import CorruptRecordError
from kafkalog.records.message_fields import FieldReader

__all__ = [
    "CONTROL_KEY_SIZE_MIN",
    "ControlRecord",
    "ControlType",
    "control_key_fields",
    "decode_control",
    "encode_marker",
]

# Version and type; later versions may have more fields.
CONTROL_KEY_SIZE_MIN: Final = 4


class ControlType(IntEnum):
    """Type of a control record; types that this version does not have become UNKNOWN."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """
    A decoded control record.

    Attributes:
        type: the type.
        type_id: the number on disk, also where `type` is UNKNOWN.
        fields: the value's fields under the names of Kafka's message schemas, plain values that
            `json` takes; empty for UNKNOWN.
    """

    type: ControlType
    type_id: int
    fields: dict[str, Any]


def control_key_fields(key: memoryview) -> tuple[int, int]:
    """Return version and type of a control record's key; of a short key, what its bytes give."""
    version = int.from_bytes(key[:2], "big", signed=True)
    return version, int.from_bytes(key[2:CONTROL_KEY_SIZE_MIN], "big", signed=True)


def decode_control(key: bytes | None, value: bytes | None) -> ControlRecord:
    """
    Decode the key and value of a record of a control batch.

    Raises:
        CorruptRecordError: the bytes end early, or a version or a length is negative.
    """
    reader = FieldReader(key, "the key of a control record")
    version, type_id = reader.int16(), reader.int16()
    if version < 0:
        raise CorruptRecordError(f"control record with key version {version}")
    try:
        kind = ControlType(type_id)
    except ValueError:
        kind = ControlType.UNKNOWN
    decode = _DECODERS.get(kind)
    if decode is None:
        return ControlRecord(ControlType.UNKNOWN, type_id, {})
    content = FieldReader(value, f"the value of a {kind.name} record")
    message_version = content.int16()
    if message_version < 0:
        raise CorruptRecordError(f"{kind.name} record with version {message_version}")
    return ControlRecord(kind, type_id, decode(content, message_version))


def encode_marker(
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp_ms: int,
    *,
    is_abort: bool,
) -> bytes:
    """
    Return the batch that ends a producer's transaction, 78 bytes, with offset 0.

    Args:
        producer_id: producer of the transaction.
        producer_epoch: of the transaction, or with transaction version 2 the next one.
        coordinator_epoch: epoch of the coordinator.
        timestamp_ms: time of the decision.
        is_abort: whether the transaction is aborted.
    """
    kind = ControlType.ABORT if is_abort else ControlType.COMMIT
    builder = BatchBuilder(capacity=128)
    builder.append(
        bytes(2) + kind.to_bytes(2), bytes(2) + coordinator_epoch.to_bytes(4), timestamp_ms
    )
    return bytes(
        builder.finish(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=True,
            control=True,
        )
    )


def _end_transaction(reader: FieldReader, _version: int) -> dict[str, Any]:
    return {"coordinatorEpoch": reader.int32()}


def _leader_change(reader: FieldReader, version: int) -> dict[str, Any]:
    def voter() -> dict[str, Any]:
        found: dict[str, Any] = {"voterId": reader.int32()}
        if version >= 1:
            found["voterDirectoryId"] = reader.uuid()
        reader.skip_tags()
        return found

    return {
        "version": version,
        "leaderId": reader.int32(),
        "voters": reader.array(voter),
        "grantingVoters": reader.array(voter),
    }


def _snapshot_header(reader: FieldReader, version: int) -> dict[str, Any]:
    return {"version": version, "lastContainedLogTimestamp": reader.int64()}


def _snapshot_footer(_reader: FieldReader, version: int) -> dict[str, Any]:
    return {"version": version}


def _kraft_version(reader: FieldReader, version: int) -> dict[str, Any]:
    return {"version": version, "kRaftVersion": reader.int16()}


def _kraft_voters(reader: FieldReader, version: int) -> dict[str, Any]:
    def endpoint() -> dict[str, Any]:
        found = {"name": reader.string(), "host": reader.string(), "port": reader.uint16()}
        reader.skip_tags()
        return found

    def voter() -> dict[str, Any]:
        found: dict[str, Any] = {
            "voterId": reader.int32(),
            "voterDirectoryId": reader.uuid(),
            "endpoints": reader.array(endpoint),
        }
        found["kRaftVersionFeature"] = {
            "minSupportedVersion": reader.int16(),
            "maxSupportedVersion": reader.int16(),
        }
        reader.skip_tags()
        reader.skip_tags()
        return found

    return {"version": version, "voters": reader.array(voter)}


_DECODERS: Final[dict[ControlType, Callable[[FieldReader, int], dict[str, Any]]]] = {
    ControlType.ABORT: _end_transaction,
    ControlType.COMMIT: _end_transaction,
    ControlType.LEADER_CHANGE: _leader_change,
    ControlType.SNAPSHOT_HEADER: _snapshot_header,
    ControlType.SNAPSHOT_FOOTER: _snapshot_footer,
    ControlType.KRAFT_VERSION: _kraft_version,
    ControlType.KRAFT_VOTERS: _kraft_voters,
}
