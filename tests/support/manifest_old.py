"""The manifests of `golden/kafka-old`, with types: records, outer entries, partitions.

The schema is in `tests/golden/kafka-old/README.md` and is not that of the 4.1 sets. An outer
entry is a message of format v0 or v1, plain or a compressed wrapper, or a batch of v2. This module
turns parsed JSON into facts and opens no file: `tests.support.golden_old` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.support.manifest import (
    CODECS,
    Headers,
    TimestampAnswer,
    ValueFact,
    decoded,
    pairs,
)

__all__ = [
    "NO_TIMESTAMP_TYPE",
    "TIMESTAMP_TYPE_NAMES",
    "OldAbortedTransactionFact",
    "OldConsumerFact",
    "OldEntryFact",
    "OldProducerFact",
    "OldRecordFact",
    "OldSegmentFact",
    "OldSummary",
    "Rendered",
    "parse_old_record",
    "parse_old_summary",
]

NO_TIMESTAMP_TYPE: Final = -1
TIMESTAMP_TYPE_NAMES: Final[Mapping[int, str]] = {
    NO_TIMESTAMP_TYPE: "NoTimestampType",
    0: "CreateTime",
    1: "LogAppendTime",
}
_TIMESTAMP_TYPES: Final = {name: number for number, name in TIMESTAMP_TYPE_NAMES.items()}


@dataclass(frozen=True, slots=True)
class OldRecordFact(ValueFact):
    """
    One record as Kafka's classes saw it: a line of `NAME.jsonl.gz`.

    `inner_crc` is None where there is no wrapper, `wrapper_timestamp` None outside v1; the fields
    from `base_offset` on are None below v2, but for the two flags, which are False there.
    """

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    value_size: int
    value_sha256: str | None
    headers: Headers
    magic: int
    codec: int
    wrapper_offset: int
    segment: str
    position: int
    batch_size: int
    crc: int
    inner_crc: int | None
    wrapper_timestamp: int | None
    base_offset: int | None
    leader_epoch: int | None
    max_timestamp: int | None
    producer_id: int | None
    producer_epoch: int | None
    sequence: int | None
    is_transactional: bool
    is_control: bool
    control_type: str | None


@dataclass(frozen=True, slots=True)
class OldEntryFact:
    """One outer entry that has records; entries that compaction emptied are not in a manifest."""

    magic: int
    codec: int
    offset: int
    segment: str
    position: int
    size_bytes: int
    crc: int
    records: tuple[OldRecordFact, ...]

    @property
    def end_position(self) -> int:
        """The position after the entry."""
        return self.position + self.size_bytes

    @property
    def is_wrapper(self) -> bool:
        """True for a compressed message set of format v0 or v1."""
        return self.magic < 2 and self.codec != 0


@dataclass(frozen=True, slots=True)
class Rendered:
    """The number of records of a rendering, its first and last offset (-1: none), its SHA-256."""

    count: int
    first_offset: int
    last_offset: int
    sha256: str


@dataclass(frozen=True, slots=True)
class OldConsumerFact:
    """The records of a consumer of the broker's age; the offsets None if it had no such request."""

    rendered: Rendered
    beginning_offset: int | None
    end_offset: int | None
    offsets_for_times: tuple[TimestampAnswer, ...]


@dataclass(frozen=True, slots=True)
class OldAbortedTransactionFact:
    """One entry of a segment's `.txnindex`."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class OldProducerFact:
    """One entry of a `.snapshot` file."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_data_offset: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int | None


@dataclass(frozen=True, slots=True)
class OldSegmentFact:
    """One segment: its files as name to (size, SHA-256), and its index entries."""

    base_offset: int
    files: Mapping[str, tuple[int, str]]
    batches: int
    records: int
    valid_bytes: int
    tail_bytes: int
    error: str | None
    offset_index: tuple[tuple[int, int], ...]
    offset_index_slots: int
    time_index: tuple[tuple[int, int], ...]
    time_index_slots: int
    aborted_transactions: tuple[OldAbortedTransactionFact, ...]

    @property
    def log_name(self) -> str:
        """The name of its `.log` file."""
        return f"{self.base_offset:020d}.log"


@dataclass(frozen=True, slots=True)
class OldSummary:
    """
    The facts about a whole partition: `NAME.summary.json`; `raw` is the file as parsed.

    The renderings are those of all records from the log start on, without control records: as they
    are, as a consumer without timestamps returns them (`bare`), as one without headers does, and as
    read_committed does.
    """

    broker: str
    partition: str
    log_start_offset: int
    log_end_offset: int
    recovery_point: int | None
    high_watermark: int | None
    cleaner_offset: int | None
    record_count: int
    control_record_count: int
    batch_count: int
    batch_kinds: Mapping[str, int]
    all: Rendered
    bare: Rendered
    no_headers: Rendered
    committed: Rendered
    leader_epochs: tuple[tuple[int, int], ...]
    producer_snapshots: Mapping[str, tuple[OldProducerFact, ...]]
    other_files: Mapping[str, tuple[int, str]]
    segments: tuple[OldSegmentFact, ...]
    consumer: OldConsumerFact | None
    consumer_committed: OldConsumerFact | None
    raw: Mapping[str, Any]


def parse_old_record(line: dict[str, Any]) -> OldRecordFact:
    """Return the fact in one line of a manifest."""
    value = decoded(line.get("value"))
    kept_size = -1 if value is None else len(value)
    return OldRecordFact(
        offset=line["offset"],
        timestamp_ms=line["timestamp"],
        timestamp_type=_TIMESTAMP_TYPES[line["timestampType"]],
        key=decoded(line["key"]),
        value=value,
        value_size=line.get("valueLength", kept_size),
        value_sha256=line.get("valueSha256"),
        headers=tuple((name, decoded(value)) for name, value in line["headers"]),
        magic=line["magic"],
        codec=CODECS.index(line["codec"]),
        wrapper_offset=line["wrapperOffset"],
        segment=line["segment"],
        position=line["position"],
        batch_size=line["batchSize"],
        crc=line["crc"],
        inner_crc=line.get("innerCrc"),
        wrapper_timestamp=line.get("wrapperTimestamp"),
        base_offset=line.get("baseOffset"),
        leader_epoch=line.get("leaderEpoch"),
        max_timestamp=line.get("maxTimestamp"),
        producer_id=line.get("producerId"),
        producer_epoch=line.get("producerEpoch"),
        sequence=line.get("sequence"),
        is_transactional=line.get("isTransactional", False),
        is_control=line.get("isControl", False),
        control_type=line.get("controlType"),
    )


def _rendered(part: dict[str, Any]) -> Rendered:
    return Rendered(part["count"], part["firstOffset"], part["lastOffset"], part["sha256"])


def _files(part: dict[str, dict[str, Any]]) -> dict[str, tuple[int, str]]:
    return {name: (fact["size"], fact["sha256"]) for name, fact in part.items()}


def _segment(line: dict[str, Any]) -> OldSegmentFact:
    return OldSegmentFact(
        base_offset=line["baseOffset"],
        files=_files(line["files"]),
        batches=line["batches"],
        records=line["records"],
        valid_bytes=line["validBytes"],
        tail_bytes=line["tailBytes"],
        error=line["error"],
        offset_index=pairs(line["offsetIndex"]),
        offset_index_slots=line["offsetIndexSlots"],
        time_index=pairs(line.get("timeIndex", ())),
        time_index_slots=line.get("timeIndexSlots", 0),
        aborted_transactions=tuple(
            OldAbortedTransactionFact(
                producer_id=entry["producerId"],
                first_offset=entry["firstOffset"],
                last_offset=entry["lastOffset"],
                last_stable_offset=entry["lastStableOffset"],
            )
            for entry in line.get("abortedTxns", ())
        ),
    )


def _producer(entry: dict[str, Any]) -> OldProducerFact:
    return OldProducerFact(
        producer_id=entry["producerId"],
        producer_epoch=entry["producerEpoch"],
        last_sequence=entry["lastSequence"],
        last_data_offset=entry["lastDataOffset"],
        last_timestamp=entry["lastTimestamp"],
        coordinator_epoch=entry["coordinatorEpoch"],
        current_txn_first_offset=entry["currentTxnFirstOffset"],
    )


def _answer(case: dict[str, Any]) -> TimestampAnswer:
    found = case["answer"] or {}
    return TimestampAnswer(case["target"], found.get("offset"), found.get("timestamp"), None)


def _consumer(part: dict[str, Any] | None) -> OldConsumerFact | None:
    if part is None:
        return None
    return OldConsumerFact(
        rendered=_rendered(part),
        beginning_offset=part["beginningOffset"],
        end_offset=part["endOffset"],
        offsets_for_times=tuple(_answer(case) for case in part["offsetsForTimes"] or ()),
    )


def parse_old_summary(parsed: dict[str, Any]) -> OldSummary:
    """Return the facts of a parsed summary."""
    snapshots = parsed["producerSnapshots"]
    return OldSummary(
        broker=parsed["broker"],
        partition=parsed["partition"],
        log_start_offset=parsed["logStartOffset"],
        log_end_offset=parsed["logEndOffset"],
        recovery_point=parsed["recoveryPoint"],
        high_watermark=parsed["highWatermark"],
        cleaner_offset=parsed["cleanerOffset"],
        record_count=parsed["records"],
        control_record_count=parsed["controlRecords"],
        batch_count=parsed["batches"],
        batch_kinds=parsed["batchKinds"],
        all=_rendered(parsed["canonicalAll"]),
        bare=_rendered(parsed["canonicalBare"]),
        no_headers=_rendered(parsed["canonicalNoHeaders"]),
        committed=_rendered(parsed["canonicalCommitted"]),
        leader_epochs=pairs(parsed["leaderEpochs"]),
        producer_snapshots={
            name: tuple(map(_producer, entries)) for name, entries in snapshots.items()
        },
        other_files=_files(parsed["otherFiles"]),
        segments=tuple(map(_segment, parsed["segments"])),
        consumer=_consumer(parsed.get("consumer")),
        consumer_committed=_consumer(parsed.get("consumerCommitted")),
        raw=parsed,
    )
