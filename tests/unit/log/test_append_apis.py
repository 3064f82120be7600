"""Lists, columns and Arrow tables that an append accepts, and those that it refuses.

`tests/properties/test_write_paths.py` shows that each of them writes what `append` writes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kafkalog import (
    InvalidRecordError,
    RecordTooLargeError,
    RecordValidationError,
    UnsupportedForMessageFormatError,
)
from tests.support.append_apis import SCHEMA, Row, one_by_one, table_of
from tests.support.arrow_c import Stream, binary, struct
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS


def stored(directory: Path) -> list[bytes]:
    """Return the bytes of all segments."""
    return [path.read_bytes() for path in sorted(directory.glob("*.log"))]


@pytest.fixture(name="directory")
def fixture_directory(tmp_path: Path) -> Path:
    """A partition directory that does not exist yet."""
    return tmp_path / "orders-0"


def test_append_columns_default_timestamps(directory: Path) -> None:
    """The clock's time without a column, -1 for null, one time for all if the call has one."""
    table = pa.table({"value": [b"a", b"b"]})
    with manual_log(directory) as log:
        log.append_columns(table)
        log.append_columns(table, timestamps=7)
        log.append_columns(table.append_column("timestamp", [pa.array([5, None], pa.int64())]))
        log.append_lists(None, [b"a", b"b"])
        log.append_lists([b"a", b"b"], None, timestamps=9)
        expected = [START_MS, START_MS, 7, 7, 5, -1, START_MS, START_MS, 9, 9]
        assert expected == [record.timestamp_ms for record in log.records()]


def test_append_columns_empty_table_appends_nothing(directory: Path) -> None:
    """A table without rows, one without chunks, and empty lists."""
    with manual_log(directory) as log:
        empty = SCHEMA.empty_table()
        for info in (
            log.append_columns(empty),
            log.append_columns(pa.Table.from_batches([], SCHEMA), wait="durable"),
            log.append_lists([], []),
        ):
            assert (0, -1, 0) == (info.first_offset, info.last_offset, info.record_count)


def test_append_columns_stream_fails_appends_nothing(directory: Path) -> None:
    """The arrays before the error are not kept."""
    good = struct([binary([b"v"], name=b"value")], length=1)
    bad = struct([binary([b"v"], name=b"value")], length=2)
    with manual_log(directory) as log:
        with pytest.raises(OSError, match="gone"):
            log.append_columns(Stream([good, good], error=b"gone", code=5))
        with pytest.raises(InvalidRecordError, match="2 are needed"):
            log.append_columns(Stream([good, bad]))
        assert (0, b"") == (log.log_end_offset, log.segments()[0].path.read_bytes())
        log.append_columns(Stream([good, good]))
        assert 2 == log.log_end_offset


def test_append_columns_invalid_rows_are_refused(directory: Path) -> None:
    """A null key, a large record, headers in an old format; row numbers count over all chunks."""
    rows: list[Row] = [(b"%d" % n, b"v", 5, []) for n in range(9)]
    table = table_of(rows)
    keyless = pa.concat_tables([table, pa.table({"value": [b"v"]})], promote_options="permissive")
    with manual_log(directory, cleanup_policy=("compact",), batch_bytes=150) as log:
        with pytest.raises(RecordValidationError) as caught:
            log.append_columns(keyless)
        assert [9] == [error.index for error in caught.value.record_errors]
        assert 0 == log.log_end_offset
    with manual_log(directory, max_message_bytes=100) as log, pytest.raises(RecordTooLargeError):
        log.append_columns(pa.table({"value": [b"v" * 200]}))
    with manual_log(directory, message_format_version="0.10.2") as log:
        headers = pa.table({"key": [b"k"], "headers": [[{"key": "a", "value": b"b"}]]})
        with pytest.raises(UnsupportedForMessageFormatError):
            log.append_columns(headers, None)


def test_append_columns_mixed_kinds_or_lengths_are_refused(directory: Path) -> None:
    """Keys, values, headers and timestamps must be of one kind and one length."""
    array = pa.array([b"a"], pa.binary())
    with manual_log(directory) as log:
        calls: list[tuple[Callable[[], object], type[Exception]]] = [
            (lambda: log.append_columns([b"a"], array), TypeError),
            (lambda: log.append_columns(array, [b"a"]), TypeError),
            (lambda: log.append_columns(array, array, headers=[None]), TypeError),
            (lambda: log.append_columns([b"a"], [b"b"], headers=array), TypeError),
            (lambda: log.append_columns(None), TypeError),
            (lambda: log.append_columns(object()), TypeError),  # type: ignore[arg-type]
            (lambda: log.append_columns(array, pa.array([b"a", b"b"])), ValueError),
            (lambda: log.append_columns(array, pa.table({"value": [b"a"]})), TypeError),
            (lambda: log.append_columns(array, pa.array([{"key": b"a"}])), InvalidRecordError),
            (
                lambda: log.append_columns(
                    pa.table({"key": [b"a"]}), None, timestamps=np.zeros(1, "i8")
                ),
                TypeError,
            ),
            (lambda: log.append_columns(pa.table({"key": ["a"], "no": [1]})), InvalidRecordError),
            (lambda: log.append_columns(pa.table({"key": [1]})), InvalidRecordError),
            (
                lambda: log.append_columns(pa.array([b"a"]).dictionary_encode()),
                InvalidRecordError,
            ),
            (lambda: log.append_lists([b"a"], [b"b", b"c"]), ValueError),
            (lambda: log.append_lists([b"a"], [b"b"], headers=[]), ValueError),
            (lambda: log.append_lists(None, None), TypeError),
            (lambda: log.append_lists([b"a"], [1]), TypeError),  # type: ignore[list-item]
            (lambda: log.append_lists([b"a"], [b"b"], timestamps=[1, 2][:0]), ValueError),
        ]
        for call, error in calls:
            with pytest.raises(error):
                call()
        assert 0 == log.log_end_offset
        log.append_columns(array, None)
        assert [(b"a", None)] == [(each.key, each.value) for each in log.records()]


def test_append_columns_offset_topic_and_partition_are_ignored(directory: Path) -> None:
    """A table may have the columns that the append assigns."""
    table = pa.table({"offset": [70], "topic": ["t"], "partition": [1], "value": [b"v"]})
    with manual_log(directory) as log:
        log.append_columns(table)
        assert [(0, b"v")] == [(each.offset, each.value) for each in log.records()]


def kinds(made: Any) -> list[Any]:
    """Return the table in every form that the interface has."""
    return [made, made.to_reader(), made.to_batches()[0], made.to_struct_array().chunk(0)]


def test_append_columns_accepts_every_form_of_a_table(directory: Path) -> None:
    """Tables, readers, record batches and struct arrays."""
    with manual_log(directory) as log:
        for source in kinds(pa.table({"key": [b"k", None], "value": ["text", ""]})):
            log.append_columns(source)
        assert [(b"k", b"text"), (None, b"")] * 4 == [(r.key, r.value) for r in log.records()]


@pytest.mark.parametrize("binary_type", ["binary", "large_binary", "binary_view"])
def test_append_columns_accepts_a_scan(binary_type: Any, tmp_path: Path) -> None:
    """Columns of one log are appended to another without Python objects and without pyarrow."""
    rows: list[Row] = [
        (b"k" * (n % 20) if n % 3 else None, b"v" * n, 5 + n, [("h", b"x")] * (n % 3))
        for n in range(50)
    ]
    with manual_log(tmp_path / "a-0", batch_bytes=300) as source:
        one_by_one(source, rows)
        with manual_log(tmp_path / "b-0", batch_bytes=300) as target:
            names = ["offset", "timestamp", "timestamp_type", "key", "value", "headers", "topic"]
            names += ["partition", "producer_id", "producer_epoch", "sequence", "leader_epoch"]
            target.append_columns(source.scan(columns=names, binary_type=binary_type))
            target.append_columns(source.scan(binary_type=binary_type))
    (once,), (twice,) = stored(tmp_path / "a-0"), stored(tmp_path / "b-0")
    assert once == twice[: len(once)]
