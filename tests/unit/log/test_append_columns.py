"""Appends of columns store the batches that an append of the same records stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog import BytesColumn, InvalidRecordError, Record
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS

KEYS = [b"k%d" % number if number % 3 else None for number in range(500)]
VALUES = [b"v" * (number % 50) if number % 7 else None for number in range(500)]
TIMES = np.arange(START_MS, START_MS + 500)


def column(cells: list[bytes | None]) -> BytesColumn:
    """Return cells in Arrow's layout, with a bitmap for the nulls."""
    sizes = [0 if cell is None else len(cell) for cell in cells]
    bitmap = np.packbits([cell is not None for cell in cells], bitorder="little")
    data = b"".join(cell for cell in cells if cell is not None)
    return BytesColumn(data, np.cumsum([0, *sizes], dtype=np.int32), bitmap)


def stored(path: Path) -> bytes:
    """Return the bytes of the first segment."""
    return (path / "00000000000000000000.log").read_bytes()


@pytest.mark.parametrize("kind", ["lists", "columns"])
@pytest.mark.parametrize("settings", [{}, {"compression_type": "gzip"}])
def test_append_columns_equals_append_of_records(
    tmp_path: Path, kind: str, settings: dict[str, Any]
) -> None:
    """Segment files are equal byte for byte, with nulls, several batches and a codec."""
    records = [
        Record(key=key, value=value, timestamp_ms=int(time))
        for key, value, time in zip(KEYS, VALUES, TIMES, strict=True)
    ]
    with manual_log(tmp_path / "a-0", batch_bytes=1000, **settings) as log:
        expected = log.append(records)
    with manual_log(tmp_path / "b-0", batch_bytes=1000, **settings) as log:
        if kind == "lists":
            info = log.append_columns(KEYS, VALUES, timestamps=TIMES)
        else:
            info = log.append_columns(column(KEYS), column(VALUES), timestamps=TIMES)
    assert expected == info
    assert expected.batch_count > 5
    assert stored(tmp_path / "a-0") == stored(tmp_path / "b-0")


def test_append_columns_without_timestamps_uses_the_clock(tmp_path: Path) -> None:
    """A single timestamp applies to all records; -1 writes none."""
    with manual_log(tmp_path / "a-0") as log:
        log.append_columns([b"k"], [b"v"])
        log.append_columns([b"k"], [b"v"], timestamps=7)
        log.append_columns([b"k"], [b"v"], timestamps=-1)
        assert [START_MS, 7, -1] == [record.timestamp_ms for record in log.records()]


@pytest.mark.parametrize("kind", ["lists", "columns"])
def test_append_columns_keys_or_values_none_are_null(tmp_path: Path, kind: str) -> None:
    """Without keys, or without values, all records have a null there."""
    cells: Any = [b"a", b"b"] if kind == "lists" else column([b"a", b"b"])
    with manual_log(tmp_path / "a-0") as log:
        log.append_columns(None, cells)
        log.append_columns(cells, None)
        pairs = [(record.key, record.value) for record in log.records()]
    assert [(None, b"a"), (None, b"b"), (b"a", None), (b"b", None)] == pairs


def test_append_columns_empty_lists_append_nothing(tmp_path: Path) -> None:
    """The info has no record, and the log end stays."""
    with manual_log(tmp_path / "a-0") as log:
        info = log.append_columns([], [])
        assert (0, 0) == (info.record_count, log.log_end_offset)


def test_append_columns_durable_syncs_the_records(tmp_path: Path) -> None:
    """`wait` has the meaning that it has in `append`."""
    with manual_log(tmp_path / "a-0") as log:
        log.append_columns([b"k"], [b"v"], wait="durable")
        assert 1 == log.durable_offset


@pytest.mark.parametrize(
    ("keys", "values", "error"),
    [
        (None, None, TypeError),
        ([b"a"], [b"a", b"b"], ValueError),
        (column([b"a"]), column([b"a", b"b"]), ValueError),
        ([b"a"], column([b"a"]), TypeError),
        (b"a", b"b", TypeError),
        ([b"a"], ["b"], TypeError),
    ],
)
def test_append_columns_mixed_types_or_lengths_are_refused(
    tmp_path: Path, keys: Any, values: Any, error: type[Exception]
) -> None:
    """Columns of two kinds or lengths, or no column: an error, and no append."""
    with manual_log(tmp_path / "a-0") as log:
        with pytest.raises(error):
            log.append_columns(keys, values)
        assert 0 == log.log_end_offset


def test_append_columns_missing_or_negative_timestamps_are_refused(tmp_path: Path) -> None:
    """Each record needs a timestamp of at least -1."""
    with manual_log(tmp_path / "a-0") as log:
        with pytest.raises(ValueError, match="timestamps must be one per record, 2, got 1"):
            log.append_columns([b"a", b"b"], [b"a", b"b"], timestamps=np.array([1]))
        with pytest.raises(InvalidRecordError):
            log.append_columns([b"a"], [b"a"], timestamps=-2)
        assert 0 == log.log_end_offset
