"""The golden manifests, with types: facts about records, batches, segments, partitions.

The schema is in `tests/golden/kafka-4.1/README.md`; Kafka's names get Python's case. This
module turns parsed JSON lines into facts and opens no file: `tests.support.golden` does.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")

Headers = tuple[tuple[str, bytes | None], ...]


class ValueFact:
    """
    A value in a manifest: None for a null one and for one over 256 bytes.

    Of a long value only the size and the hash are kept: compare with `has_value`, which knows the
    three cases.
    """

    __slots__ = ()

    value: bytes | None
    value_size: int
    value_sha256: str | None

    def has_value(self, value: bytes | None) -> bool:
        """Return whether `value` is the value of this record."""
        if value is None or self.value_size < 0:
            return value is None and self.value_size < 0
        if self.value_sha256 is None:
            return self.value == value
        if self.value_size != len(value):
            return False
        return self.value_sha256 == hashlib.sha256(value).hexdigest()


@dataclass(frozen=True, slots=True)
class RecordFact(ValueFact):
    """One record as Kafka's classes saw it: a line of `NAME.jsonl.gz`."""

    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    value_size: int
    value_sha256: str | None
    headers: Headers
    batch_base_offset: int
    batch_last_offset: int
    position: int
    batch_size: int
    segment: str
    crc: int
    codec: int
    producer_id: int
    producer_epoch: int
    sequence: int
    leader_epoch: int
    is_transactional: bool
    is_control: bool
    control_type: str | None
    control_value: Any
    delete_horizon_ms: int | None


@dataclass(frozen=True, slots=True)
class BatchFact:
    """One batch as Kafka's classes saw it: a line of `NAME.batches.jsonl.gz`."""

    base_offset: int
    last_offset: int
    record_count: int
    header_record_count: int
    base_timestamp: int
    max_timestamp: int
    timestamp_type: int
    codec: int
    magic: int
    crc: int
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    last_sequence: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    segment: str
    position: int
    batch_size: int


@dataclass(frozen=True, slots=True)
class AbortedTransactionFact:
    """One entry of a segment's `.txnindex`."""

    version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class SegmentFact:
    """One segment: its sizes and its index entries, as (absolute offset, position) and the like."""

    segment: str
    base_offset: int
    batches: int
    records: int
    log_bytes: int
    valid_bytes: int
    offset_index: tuple[tuple[int, int], ...]
    offset_index_slots: int
    time_index: tuple[tuple[int, int], ...]
    time_index_slots: int
    aborted_transactions: tuple[AbortedTransactionFact, ...] = ()


@dataclass(frozen=True, slots=True)
class ProducerFact:
    """One entry of a `.snapshot` file."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_timestamp: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    current_txn_first_offset: int | None


@dataclass(frozen=True, slots=True)
class CountAndHash:
    """The number of records, and their canonical hash."""

    count: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ConsumerFact:
    """The records that a consumer of a real broker read from a copy of these files."""

    beginning_offset: int
    end_offset: int
    position_after: int
    data: CountAndHash
    offset_ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TimestampAnswer:
    """A question to `offsetsForTimes` and its answer; `offset` None: no record that late."""

    timestamp_ms: int
    offset: int | None
    found_timestamp_ms: int | None
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class RecoveredSegmentFact:
    """A segment after a broker of the same version had recovered a copy of the directory."""

    segment: str
    log_bytes: int
    batches: int
    records: int
    offset_index_entries: int
    time_index_entries: int


@dataclass(frozen=True, slots=True)
class RecoveredFact:
    """The files that a broker left after a start on a copy of an unclean directory."""

    log_start_offset: int
    log_end_offset: int
    segment_count: int
    batch_count: int
    record_count: int
    control_record_count: int
    data: CountAndHash
    leader_epochs: tuple[tuple[int, int], ...]
    segments: tuple[RecoveredSegmentFact, ...]
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The facts about a whole partition: `NAME.summary.json`; `raw` is the file as parsed."""

    partition: str
    log_start_offset: int
    log_end_offset: int
    segment_count: int
    batch_count: int
    record_count: int
    control_record_count: int
    data: CountAndHash
    empty_batches: tuple[int, ...]
    segments: tuple[SegmentFact, ...]
    producer_snapshots: Mapping[str, tuple[ProducerFact, ...]]
    leader_epochs: tuple[tuple[int, int], ...]
    topic_id: str | None
    checkpoint_log_start_offset: int | None
    checkpoint_recovery_point: int | None
    checkpoint_high_watermark: int | None
    checkpoint_cleaner_offset: int | None
    read_uncommitted: ConsumerFact | None
    read_committed: ConsumerFact | None
    offsets_for_times: tuple[TimestampAnswer, ...]
    max_timestamp: TimestampAnswer | None
    recovered: RecoveredFact | None
    raw: Mapping[str, Any]


def decoded(value: str | None) -> bytes | None:
    """Return the bytes of base64 text; null is null."""
    return None if value is None else base64.b64decode(value, validate=True)


def pairs(rows: Iterable[Iterable[int]]) -> tuple[tuple[int, int], ...]:
    """Return rows of two numbers as tuples."""
    found = []
    for row in rows:
        first, second = row
        found.append((first, second))
    return tuple(found)


def parse_record(line: dict[str, Any]) -> RecordFact:
    value = decoded(line.get("value"))
    kept_size = -1 if value is None else len(value)
    return RecordFact(
        offset=line["offset"],
        timestamp_ms=line["timestamp"],
        timestamp_type=TIMESTAMP_TYPES.index(line["timestampType"]),
        key=decoded(line["key"]),
        value=value,
        value_size=line.get("valueLength", kept_size),
        value_sha256=line.get("valueSha256"),
        headers=tuple((name, decoded(value)) for name, value in line["headers"]),
        batch_base_offset=line["batchBaseOffset"],
        batch_last_offset=line["batchLastOffset"],
        position=line["position"],
        batch_size=line["batchSize"],
        segment=line["segment"],
        crc=line["crc"],
        codec=CODECS.index(line["codec"]),
        producer_id=line["producerId"],
        producer_epoch=line["producerEpoch"],
        sequence=line["sequence"],
        leader_epoch=line["leaderEpoch"],
        is_transactional=line["isTransactional"],
        is_control=line["isControl"],
        control_type=line["controlType"],
        control_value=line.get("controlValue"),
        delete_horizon_ms=line["deleteHorizonMs"],
    )


def parse_batch(line: dict[str, Any]) -> BatchFact:
    return BatchFact(
        base_offset=line["baseOffset"],
        last_offset=line["lastOffset"],
        record_count=line["recordCount"],
        header_record_count=line["headerRecordCount"],
        base_timestamp=line["baseTimestamp"],
        max_timestamp=line["maxTimestamp"],
        timestamp_type=TIMESTAMP_TYPES.index(line["timestampType"]),
        codec=CODECS.index(line["codec"]),
        magic=line["magic"],
        crc=line["crc"],
        leader_epoch=line["leaderEpoch"],
        producer_id=line["producerId"],
        producer_epoch=line["producerEpoch"],
        base_sequence=line["baseSequence"],
        last_sequence=line["lastSequence"],
        is_transactional=line["isTransactional"],
        is_control=line["isControl"],
        delete_horizon_ms=line["deleteHorizonMs"],
        segment=line["segment"],
        position=line["position"],
        batch_size=line["batchSize"],
    )


def _segment(line: dict[str, Any]) -> SegmentFact:
    return SegmentFact(
        segment=line["segment"],
        base_offset=line["baseOffset"],
        batches=line["batches"],
        records=line["records"],
        log_bytes=line["logBytes"],
        valid_bytes=line["validBytes"],
        offset_index=pairs(line["offsetIndex"]),
        offset_index_slots=line["offsetIndexSlots"],
        time_index=pairs(line["timeIndex"]),
        time_index_slots=line["timeIndexSlots"],
        aborted_transactions=tuple(
            AbortedTransactionFact(
                version=entry["version"],
                producer_id=entry["producerId"],
                first_offset=entry["firstOffset"],
                last_offset=entry["lastOffset"],
                last_stable_offset=entry["lastStableOffset"],
            )
            for entry in line.get("abortedTransactions", ())
        ),
    )


def _producers(entries: Iterable[dict[str, Any]]) -> tuple[ProducerFact, ...]:
    return tuple(
        ProducerFact(
            producer_id=entry["producerId"],
            producer_epoch=entry["producerEpoch"],
            coordinator_epoch=entry["coordinatorEpoch"],
            last_timestamp=entry["lastTimestamp"],
            last_sequence=entry["lastSequence"],
            last_offset=entry["lastOffset"],
            offset_delta=entry["offsetDelta"],
            current_txn_first_offset=entry["currentTxnFirstOffset"],
        )
        for entry in entries
    )


def _consumer(part: dict[str, Any] | None) -> ConsumerFact | None:
    if part is None:
        return None
    return ConsumerFact(
        beginning_offset=part["beginningOffset"],
        end_offset=part["endOffset"],
        position_after=part["positionAfter"],
        data=CountAndHash(part["count"], part["sha256"]),
        offset_ranges=pairs(part.get("offsetRanges", ())),
    )


def _answers(consumer: dict[str, Any]) -> tuple[TimestampAnswer, ...]:
    answers = []
    for case in consumer.get("offsetsForTimes", ()):
        found = case["result"] or {}
        answers.append(
            TimestampAnswer(
                timestamp_ms=case["timestamp"],
                offset=found.get("offset"),
                found_timestamp_ms=found.get("timestamp"),
                leader_epoch=found.get("leaderEpoch"),
            )
        )
    return tuple(answers)


def _recovered(part: dict[str, Any] | None) -> RecoveredFact | None:
    if part is None:
        return None
    data = part["dataRecordsFromLogStart"]
    return RecoveredFact(
        log_start_offset=part["logStartOffset"],
        log_end_offset=part["logEndOffset"],
        segment_count=part["segmentCount"],
        batch_count=part["batchCount"],
        record_count=part["recordCount"],
        control_record_count=part["controlRecordCount"],
        data=CountAndHash(data["count"], data["sha256"]),
        leader_epochs=pairs(part["leaderEpochs"]),
        segments=tuple(
            RecoveredSegmentFact(
                segment=entry["segment"],
                log_bytes=entry["logBytes"],
                batches=entry["batches"],
                records=entry["records"],
                offset_index_entries=entry["offsetIndexEntries"],
                time_index_entries=entry["timeIndexEntries"],
            )
            for entry in part["segments"]
        ),
        files=tuple(part["files"]),
    )


def parse_summary(parsed: dict[str, Any]) -> Summary:
    consumer = parsed.get("consumer") or parsed.get("consumerAfterRecovery") or {}
    data = parsed["dataRecordsFromLogStart"]
    checkpoints = parsed["checkpoints"]
    latest = consumer.get("maxTimestamp")
    return Summary(
        partition=parsed["partition"],
        log_start_offset=parsed["logStartOffset"],
        log_end_offset=parsed["logEndOffset"],
        segment_count=parsed["segmentCount"],
        batch_count=parsed["batchCount"],
        record_count=parsed["recordCount"],
        control_record_count=parsed["controlRecordCount"],
        data=CountAndHash(data["count"], data["sha256"]),
        empty_batches=tuple(parsed["emptyBatches"]),
        segments=tuple(_segment(line) for line in parsed["segments"]),
        producer_snapshots={
            entry["file"]: _producers(entry["producers"]) for entry in parsed["producerSnapshots"]
        },
        leader_epochs=pairs(parsed["leaderEpochs"]),
        topic_id=parsed["topicId"],
        checkpoint_log_start_offset=checkpoints["logStartOffset"],
        checkpoint_recovery_point=checkpoints["recoveryPoint"],
        checkpoint_high_watermark=checkpoints["highWatermark"],
        checkpoint_cleaner_offset=checkpoints["cleanerOffset"],
        read_uncommitted=_consumer(consumer.get("readUncommitted")),
        read_committed=_consumer(consumer.get("readCommitted")),
        offsets_for_times=_answers(consumer),
        max_timestamp=None
        if latest is None
        else TimestampAnswer(
            timestamp_ms=-3,
            offset=latest["offset"],
            found_timestamp_ms=latest["timestamp"],
            leader_epoch=latest.get("leaderEpoch"),
        ),
        recovered=_recovered(parsed.get("recovered")),
        raw=parsed,
    )
