"""Facts of a log's batches and records, in the form of the manifests' facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from kafkalog import BatchView, Log, Record
from kafkalog._core.header import BatchHeader
from tests.support.golden import BatchFact, Manifest, RecordFact
from tests.support.manifest_old import OldRecordFact

__all__ = [
    "batch_fact",
    "batch_facts",
    "check_record",
    "log_batches",
    "manifest_batches",
    "manifest_records",
    "visible_records",
]


@cache
def manifest_batches(manifest: Manifest) -> tuple[BatchFact, ...]:
    """Return the batch lines of a manifest."""
    return tuple(manifest.batches())


@cache
def manifest_records(manifest: Manifest) -> tuple[RecordFact, ...]:
    """Return the record lines of a manifest, control records too."""
    return tuple(manifest.records())


def _last_sequence(header: BatchHeader) -> int:
    """Return the sequence of the last record; the format wraps it at 2^31-1."""
    if header.base_sequence < 0:
        return -1
    return (header.base_sequence + header.last_offset_delta) % 2**31


def batch_fact(batch: BatchView, record_count: int) -> BatchFact:
    """Return the manifest fact of `batch`; `record_count` is the number decoded."""
    header = batch.header
    assert batch.path is not None
    return BatchFact(
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        record_count=record_count,
        header_record_count=header.record_count,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        timestamp_type=header.timestamp_type,
        codec=header.codec,
        magic=header.magic,
        crc=header.crc,
        leader_epoch=header.partition_leader_epoch,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        last_sequence=_last_sequence(header),
        is_transactional=header.is_transactional,
        is_control=header.is_control,
        delete_horizon_ms=header.delete_horizon_ms,
        segment=str(batch.path).rpartition("/")[2],
        position=batch.position,
        batch_size=header.size_bytes,
    )


def log_batches(log: Log) -> Iterator[BatchView]:
    """Yield every batch of every segment, also the batches below the log start offset."""
    for segment in log.segments():
        position = 0
        data = segment.file.whole()
        while position < segment.size_bytes:
            batch = BatchView(data[position:], path=segment.path, position=position)
            batch = BatchView(
                data[position : position + batch.header.size_bytes],
                path=segment.path,
                position=position,
            )
            batch.check()
            yield batch
            position += batch.header.size_bytes


def batch_facts(batches: Iterable[BatchView]) -> list[BatchFact]:
    """Return the fact of each batch, its records counted by decoding them."""
    return [batch_fact(batch, len(batch.records())) for batch in batches]


def visible_records(manifest: Manifest, log_start_offset: int) -> list[RecordFact]:
    """Return the facts of the records that a reader gets: no control records, none below start."""
    return [
        fact
        for fact in manifest_records(manifest)
        if not fact.is_control and fact.offset >= log_start_offset
    ]


def check_record(fact: RecordFact | OldRecordFact, record: Record) -> None:
    """Assert that a record is the one of the manifest."""
    assert (fact.offset, fact.timestamp_ms, fact.timestamp_type, fact.key, fact.headers) == (
        record.offset,
        record.timestamp_ms,
        record.timestamp_type,
        record.key,
        record.headers,
    )
    assert fact.has_value(record.value), f"value of offset {fact.offset}"
