"""The expected result of a scan, by a slow path: record by record, each with its batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kafkalog import BatchView, KafkaLogError, Log, Record, TopicPartition
from kafkalog.log.scan.scan import Scan
from tests.support.arrow_consumer import cells_of

__all__ = ["ALL_COLUMNS", "Rows", "rows_of_scan", "slow_rows"]

ALL_COLUMNS = (
    *("offset", "timestamp", "timestamp_type", "key", "value", "headers", "topic", "partition"),
    *("producer_id", "producer_epoch", "sequence", "leader_epoch"),
)

# The rows before an error, and the error.
Rows = tuple[list[tuple[Any, ...]], tuple[Any, ...] | None]


def rows_of_scan(scan: Scan) -> Rows:
    """Return what a scan gives; each batch within its limit of rows."""
    rows: list[tuple[Any, ...]] = []
    try:
        for batch in scan:
            assert 0 < len(batch) <= scan.options.batch_rows
            rows += zip(*cells_of(batch).values(), strict=True)
    except KafkaLogError as error:
        return rows, _described(error)
    return rows, None


def _described(error: KafkaLogError) -> tuple[Any, ...]:
    return type(error), error.path, error.position, error.base_offset


def slow_rows(
    log: Log,
    columns: Sequence[str],
    start: int | None = None,
    end: int | None = None,
    *,
    condition: Callable[[Record], bool] = lambda _: True,
    **how: Any,
) -> Rows:
    """Return the rows of the records that a log gives."""
    rows: list[tuple[Any, ...]] = []
    headers = _batches_by_offset(log) if set(columns) & set(ALL_COLUMNS[8:]) else {}
    try:
        for record in log.records(start, end, **how):
            if condition(record):
                cells = _cells(record, headers.get(record.offset), log.topic_partition)
                rows.append(tuple(cells[name] for name in columns))
    except KafkaLogError as error:
        return rows, _described(error)
    return rows, None


def _batches_by_offset(log: Log) -> dict[int, BatchView]:
    found: dict[int, BatchView] = {}
    for batch in log.batches(on_corrupt="skip"):
        try:
            found |= dict.fromkeys((record.offset for record in batch.records()), batch)
        except KafkaLogError:
            continue
    return found


def _none_if_negative(number: int) -> int | None:
    return None if number < 0 else number


def _cells(record: Record, batch: BatchView | None, name: TopicPartition) -> dict[str, Any]:
    cells = {
        "offset": record.offset,
        "timestamp": None if record.timestamp_ms == -1 else record.timestamp_ms,
        "timestamp_type": _none_if_negative(record.timestamp_type),
        "key": record.key,
        "value": record.value,
        "headers": list(record.headers),
        "topic": name.topic,
        "partition": name.partition,
    }
    if batch is not None:
        header = batch.header
        sequence = header.base_sequence
        if sequence >= 0:
            sequence = (sequence + record.offset - header.base_offset) % 2**31
        cells |= {
            "producer_id": _none_if_negative(header.producer_id),
            "producer_epoch": _none_if_negative(header.producer_epoch),
            "sequence": _none_if_negative(sequence),
            "leader_epoch": _none_if_negative(header.partition_leader_epoch),
        }
    return cells
