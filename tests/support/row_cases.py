"""Arrow columns of decoded rows: those of a builder, and those of the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkalog._core.columns import RecordColumns
from kafkalog._core.header import BatchHeader
from kafkalog._core.row_builder import RowBuilder
from kafkalog._core.row_filter import BatchRuns
from tests.support import reference_records as reference
from tests.support.arrow_consumer import cells_of
from tests.support.reference import Header

__all__ = ["built", "expected_rows", "rows_of", "runs_of"]


def built(
    data: Any, columns: RecordColumns, runs: BatchRuns, builder: RowBuilder, *, lasting: bool
) -> list[dict[str, list[Any]]]:
    """Return the batches that all rows make."""
    batches, row = [], 0
    while row < len(columns):
        row = builder.add(data, columns, row, runs, lasting=lasting)
        if row < len(columns) or builder.is_full:
            batches.append(cells_of(builder.finish()))
    if len(builder):
        batches.append(cells_of(builder.finish()))
    return batches


def none_if(value: int, nothing: int = -1) -> int | None:
    """Return Arrow's value for a number that means none."""
    return None if value == nothing else value


def expected_rows(
    payload: bytes,
    header: Header,
    columns: Sequence[str],
    *,
    text: bool = False,
    strict: bool = True,
) -> list[tuple[Any, ...]]:
    """Return the rows of a batch of records by the reference."""
    rows = []
    for record in reference.decode(payload, header, strict=strict):
        sequence = (header.base_sequence + record.offset - header.base_offset) % 2**31
        pairs = record.entry.headers
        row = {
            "offset": record.offset,
            "timestamp": none_if(record.timestamp),
            "timestamp_type": header.attributes >> 3 & 1,
            "key": record.entry.key,
            "value": record.entry.value,
            "headers": [(key.decode() if text else key, value) for key, value in pairs],
            "topic": "t-\xe9",
            "partition": 7,
            "producer_id": None if header.producer_id < 0 else header.producer_id,
            "producer_epoch": None if header.producer_epoch < 0 else header.producer_epoch,
            "sequence": None if header.base_sequence < 0 else sequence,
            "leader_epoch": None
            if header.partition_leader_epoch < 0
            else header.partition_leader_epoch,
        }
        rows.append(tuple(row[name] for name in columns))
    return rows


def rows_of(batches: Sequence[dict[str, list[Any]]]) -> list[tuple[Any, ...]]:
    """Return the rows of batches."""
    return [row for cells in batches for row in zip(*cells.values(), strict=True)]


def runs_of(header: BatchHeader, count: int) -> BatchRuns:
    """Return the runs of one batch."""
    runs = BatchRuns()
    runs.add_batch(header, count)
    return runs
