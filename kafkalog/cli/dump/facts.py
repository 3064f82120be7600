"""Facts of a dump, one a line: as text for people and grep, as JSON for programs.

Text lines of batches, records and index entries have the form of Kafka's own dump tool, so scripts
for that tool read these too. JSON objects have a member `kind`, then the names of kafkalog's own
attributes; keys and values of records are base64 or null.

Facts are plain frozen values. They depend on no file and no terminal.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from kafkalog.codec_table import CODEC_NAMES
from kafkalog.records.control import ControlRecord, ControlType

__all__ = [
    "AbortedTransactionFact",
    "BatchFact",
    "DamageFact",
    "EntryFact",
    "Fact",
    "FileFact",
    "LogStartFact",
    "ProducerFact",
    "RecordFact",
    "ZerosFact",
]

# By their number; magic 0 has none, which is -1.
TIMESTAMP_TYPES: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
# Three bits hold the codec; damaged or foreign batches may have any of them.
NAMES_BY_CODEC: Final = (*CODEC_NAMES, *(f"codec{number}" for number in range(len(CODEC_NAMES), 8)))
_SEQUENCE_COUNT: Final = 2**31

# Fields of a batch that messages of the old formats do not have.
_ONLY_IN_V2: Final = (
    "base_timestamp",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "base_sequence",
    "last_sequence",
)

# Labels of control records in Kafka's tool.
_CONTROL_TITLES: Final = {
    ControlType.LEADER_CHANGE: "LeaderChange: ",
    ControlType.SNAPSHOT_HEADER: "SnapshotHeader ",
    ControlType.SNAPSHOT_FOOTER: "SnapshotFooter ",
    ControlType.KRAFT_VERSION: "KRaftVersion ",
    ControlType.KRAFT_VOTERS: "KRaftVoters ",
}


class Fact(Protocol):
    """One line of a dump."""

    def text(self) -> str:
        """Return the line, without its end; never a line feed in it."""
        ...

    def fields(self) -> dict[str, Any]:
        """Return the JSON object."""
        ...


@dataclass(frozen=True, slots=True)
class FileFact:
    """The facts that follow are about this file."""

    path: Path
    size_bytes: int
    content: str
    base_offset: int | None = None

    def text(self) -> str:
        return f"Dumping {self.path}"

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "kind": "file",
            "path": str(self.path),
            "content": self.content,
            "size_bytes": self.size_bytes,
        }
        if self.base_offset is not None:
            found["base_offset"] = self.base_offset
        return found


@dataclass(frozen=True, slots=True)
class LogStartFact:
    """The offset that a segment's name gives it; a text line only (JSON has it in the file)."""

    base_offset: int

    def text(self) -> str:
        return f"Log starting offset: {self.base_offset}"

    def fields(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, slots=True)
class BatchFact:
    """
    A whole batch with a good CRC, from its header.

    A message of the old formats is a batch, too; fields that its format does not have are null in
    JSON. Of a wrapper also the base offset and the number of records are null: they are not in its
    header.
    """

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    record_count: int
    base_timestamp: int
    max_timestamp: int
    attributes: int
    crc: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    magic: int

    @property
    def timestamp_type(self) -> str:
        return TIMESTAMP_TYPES[(self.attributes >> 3) & 1 if self.magic else -1]

    @property
    def is_wrapper(self) -> bool:
        return self.magic < 2 and self.attributes & 7 != 0

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & 0x20)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & 0x40 else None

    def sequence_of(self, offset: int) -> int:
        """Return the producer's sequence number of the record at `offset`, -1 for none."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + offset - self.base_offset) % _SEQUENCE_COUNT

    def text(self) -> str:
        offsets = f"offset: {self.last_offset}" if self.magic < 2 else self._text_of_v2()
        return (
            f"{offsets} position: {self.position} "
            f"{self.timestamp_type}: {self.max_timestamp} size: {self.size_bytes} "
            f"magic: {self.magic} "
            f"compresscodec: {NAMES_BY_CODEC[self.attributes & 7]} crc: {self.crc} isvalid: true"
        )

    def _text_of_v2(self) -> str:
        transactional = "true" if self.attributes & 0x10 else "false"
        control = "true" if self.is_control else "false"
        return (
            f"baseOffset: {self.base_offset} lastOffset: {self.last_offset} "
            f"count: {self.record_count} baseSequence: {self.base_sequence} "
            f"lastSequence: {self.sequence_of(self.last_offset)} producerId: {self.producer_id} "
            f"producerEpoch: {self.producer_epoch} partitionLeaderEpoch: {self.leader_epoch} "
            f"isTransactional: {transactional} isControl: {control} "
            f"deleteHorizonMs: {optional_long(self.delete_horizon_ms)}"
        )

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "kind": "batch",
            "position": self.position,
            "size_bytes": self.size_bytes,
            "base_offset": self.base_offset,
            "last_offset": self.last_offset,
            "record_count": self.record_count,
            "base_timestamp": self.base_timestamp,
            "max_timestamp": self.max_timestamp,
            "timestamp_type": self.timestamp_type,
            "codec": NAMES_BY_CODEC[self.attributes & 7],
            "magic": self.magic,
            "crc": self.crc,
            "leader_epoch": self.leader_epoch,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "base_sequence": self.base_sequence,
            "last_sequence": self.sequence_of(self.last_offset),
            "is_transactional": bool(self.attributes & 0x10),
            "is_control": self.is_control,
            "delete_horizon_ms": self.delete_horizon_ms,
        }
        if self.magic < 2:
            found.update(dict.fromkeys(_ONLY_IN_V2))
            if self.is_wrapper:
                found.update(base_offset=None, record_count=None)
        return found


@dataclass(frozen=True, slots=True)
class RecordFact:
    """A record; `control` is the meaning of a control record, `crc` is a message's own."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    sequence: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    control: ControlRecord | None = None
    crc: int | None = None

    def text(self) -> str:
        line = (
            f"| offset: {self.offset} {TIMESTAMP_TYPES[self.timestamp_type]}: {self.timestamp_ms} "
            f"keySize: {size_of(self.key)} valueSize: {size_of(self.value)} "
        )
        if self.crc is None:
            names = ",".join(escaped(name) for name, _ in self.headers)
            line += f"sequence: {self.sequence} headerKeys: [{names}]"
        else:
            # The brace is the tool's.
            line += f"isValid: true crc: {self.crc}}}"
        if self.control is not None:
            return f"{line} {control_text(self.control)}"
        if self.key is not None:
            line += f" key: {shown(self.key)}"
        if self.value is not None:
            line += f" payload: {shown(self.value)}"
        return line

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "kind": "record",
            "offset": self.offset,
            "timestamp_ms": self.timestamp_ms,
            "timestamp_type": TIMESTAMP_TYPES[self.timestamp_type],
            "sequence": self.sequence,
            "key": base64_text(self.key),
            "value": base64_text(self.value),
            "headers": [
                [name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace"), text]
                for name, text in ((name, base64_text(value)) for name, value in self.headers)
            ],
        }
        if self.crc is not None:
            found["crc"] = self.crc
        if self.control is not None:
            found["control_type"] = self.control.type.name.lower()
            found["control_value"] = self.control.fields
        return found


@dataclass(frozen=True, slots=True)
class EntryFact:
    """An entry with few fields: of an index, a checkpoint, a metadata file."""

    kind: str
    values: Mapping[str, Any]

    def text(self) -> str:
        return " ".join(f"{name}: {value}" for name, value in self.values.items())

    def fields(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.values}


@dataclass(frozen=True, slots=True)
class AbortedTransactionFact:
    """
    An entry of a transaction index: one transaction whose records no reader of committed data gets.
    """

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def text(self) -> str:
        return (
            f"version: {self.version} producerId: {self.producer_id} "
            f"firstOffset: {self.first_offset} lastOffset: {self.last_offset} "
            f"lastStableOffset: {self.last_stable_offset}"
        )

    def fields(self) -> dict[str, Any]:
        return {
            "kind": "aborted_transaction",
            "version": self.version,
            "producer_id": self.producer_id,
            "first_offset": self.first_offset,
            "last_offset": self.last_offset,
            "last_stable_offset": self.last_stable_offset,
        }


@dataclass(frozen=True, slots=True)
class ProducerFact:
    """An entry of a producer snapshot; the last batch's fields are -1 where only markers were."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    current_transaction_first_offset: int | None

    def text(self) -> str:
        line = (
            f"producerId: {self.producer_id} producerEpoch: {self.producer_epoch} "
            f"coordinatorEpoch: {self.coordinator_epoch} "
            f"currentTxnFirstOffset: {optional_long(self.current_transaction_first_offset)} "
            f"lastTimestamp: {self.last_timestamp} "
        )
        if self.last_offset >= 0:
            first = (self.last_sequence - self.offset_delta) % _SEQUENCE_COUNT
            line += (
                f"firstSequence: {first} lastSequence: {self.last_sequence} "
                f"lastOffset: {self.last_offset} offsetDelta: {self.offset_delta} "
                f"timestamp: {self.last_timestamp}"
            )
        return line

    def fields(self) -> dict[str, Any]:
        return {
            "kind": "producer",
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "coordinator_epoch": self.coordinator_epoch,
            "last_timestamp": self.last_timestamp,
            "last_sequence": self.last_sequence,
            "last_offset": self.last_offset,
            "offset_delta": self.offset_delta,
            "current_transaction_first_offset": self.current_transaction_first_offset,
        }


@dataclass(frozen=True, slots=True)
class ZerosFact:
    """Zero bytes up to the end of a segment: preallocated and never written, no damage."""

    position: int
    size_bytes: int

    def text(self) -> str:
        return f"ZEROS position: {self.position} size: {self.size_bytes}"

    def fields(self) -> dict[str, Any]:
        return {"kind": "zeros", "position": self.position, "size_bytes": self.size_bytes}


@dataclass(frozen=True, slots=True)
class DamageFact:
    """
    Damaged bytes; the dump continues after them.

    Attributes:
        position: first damaged byte of the file, or None if it is the file as a whole.
        size_bytes: number of bytes that are skipped.
        reason: short and stable, for grep: the name of the check that failed.
        meaning: one sentence for people.
        first_offset, next_offset: the range of offsets that may be missing, or None.
    """

    position: int | None
    size_bytes: int
    reason: str
    meaning: str
    first_offset: int | None = None
    next_offset: int | None = None

    def text(self) -> str:
        where = "" if self.position is None else f" position: {self.position}"
        line = f"DAMAGE{where} size: {self.size_bytes} reason: {self.reason}"
        if self.first_offset is not None and self.next_offset is not None:
            line += f" firstOffset: {self.first_offset} nextOffset: {self.next_offset}"
        return f"{line} ({escaped(self.meaning)})"

    def fields(self) -> dict[str, Any]:
        return {
            "kind": "damage",
            "position": self.position,
            "size_bytes": self.size_bytes,
            "reason": self.reason,
            "meaning": self.meaning,
            "first_offset": self.first_offset,
            "next_offset": self.next_offset,
        }


def control_text(control: ControlRecord) -> str:
    """Return the content of a control record in the form of Kafka's tool."""
    if control.type in (ControlType.ABORT, ControlType.COMMIT):
        epoch = control.fields["coordinatorEpoch"]
        return f"endTxnMarker: {control.type.name} coordinatorEpoch: {epoch}"
    title = _CONTROL_TITLES.get(control.type)
    if title is None:
        return f"controlType: {control.type.name}({control.type_id})"
    return title + json.dumps(control.fields, separators=(",", ":"))


def optional_long(value: int | None) -> str:
    """Return a number that may be missing, as Java prints it."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"


def size_of(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def base64_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")


def shown(data: bytes) -> str:
    """Return bytes as one line of text: UTF-8 as it is, everything unprintable escaped."""
    return escaped(data.decode("utf-8", "backslashreplace"))


def escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )
