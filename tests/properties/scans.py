"""Scans of any kind: arguments drawn, and the cells that a row has to become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from hypothesis import strategies as st

from kafkalog import TopicPartition
from tests.properties.any_logs import KEYS
from tests.properties.truth import Row
from tests.support.manual_time import START_MS
from tests.support.scanning import ALL_COLUMNS

__all__ = ["BINARY_TYPES", "cells_of_row", "matches", "scan_arguments"]

BINARY_TYPES: Final = ("binary", "large_binary", "binary_view")
Filters = Sequence[tuple[str, str, Any]]

_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda cell, value: cell == value,
    "in": lambda cell, value: cell in value,
    "<": lambda cell, value: cell is not None and cell < value,
    "<=": lambda cell, value: cell is not None and cell <= value,
    ">": lambda cell, value: cell is not None and cell > value,
    ">=": lambda cell, value: cell is not None and cell >= value,
}


@st.composite
def _filters(draw: st.DrawFn, end: int) -> Filters:
    values: dict[str, st.SearchStrategy[Any]] = {
        "offset": st.integers(-1, end + 1) | st.integers(max(end - 20, 0), end),
        "timestamp": st.integers(START_MS - 1, START_MS + 61),
        "key": st.sampled_from([*KEYS, b"none has this"]),
    }
    filters = []
    for column in draw(st.lists(st.sampled_from(sorted(values)), max_size=2)):
        operators = ["==", "in"] if column == "key" else sorted(_COMPARED)
        operator = draw(st.sampled_from(operators))
        value = values[column]
        filters.append((column, operator, draw(st.lists(value) if operator == "in" else value)))
    return filters


@st.composite
def scan_arguments(draw: st.DrawFn, end: int) -> dict[str, Any]:
    """Draw columns, filters, types and sizes of batches for a log that ends at `end`."""
    return {
        "columns": draw(st.lists(st.sampled_from(ALL_COLUMNS), min_size=1, unique=True)),
        "filters": draw(st.just([]) | _filters(end)),
        "binary_type": draw(st.sampled_from(BINARY_TYPES)),
        "header_key_type": draw(st.sampled_from(["utf8", "binary"])),
        "batch_rows": draw(st.sampled_from([1, 3, 65536])),
        "batch_bytes": draw(st.sampled_from([1, 300, 1 << 20])),
    }


def matches(filters: Filters, row: Row) -> bool:
    """Return whether all filters hold for a row."""
    cells = {
        "offset": row.offset,
        "timestamp": None if row.timestamp == -1 else row.timestamp,
        "key": row.key,
    }
    return all(_COMPARED[how](cells[name], value) for name, how, value in filters)


def cells_of_row(
    row: Row, partition: TopicPartition, columns: Sequence[str], *, is_text: bool
) -> tuple[Any, ...] | None:
    """Return the cells of a row; None where names of headers are to be text, and one is none."""
    cells: dict[str, Any] = {
        "offset": row.offset,
        "timestamp": _null(row.timestamp),
        "timestamp_type": _null(row.timestamp_type),
        "key": row.key,
        "value": row.value,
        "topic": partition.topic,
        "partition": partition.partition,
        "producer_id": _null(row.producer_id),
        "producer_epoch": _null(row.producer_epoch),
        "sequence": _null(row.sequence),
        "leader_epoch": _null(row.leader_epoch),
    }
    if "headers" in columns:
        try:
            cells["headers"] = [(_name(key, is_text), cell) for key, cell in row.headers]
        except UnicodeDecodeError:
            return None
    return tuple(cells[name] for name in columns)


def _name(key: bytes, is_text: bool) -> str | bytes:
    return key.decode() if is_text else key


def _null(number: int) -> int | None:
    return None if number == -1 else number
