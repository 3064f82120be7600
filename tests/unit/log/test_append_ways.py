"""What lists, columns and Arrow's tables may be, and what of them is refused.

That each way writes what `append` writes is shown in `tests/properties/test_write_paths.py`.
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
    """The clock's time for a table without; null is none; one for all where it is said."""
    table = pa.table({"value": [b"a", b"b"]})
    with manual_log(directory) as log:
        log.append_columns(table)
        log.append_columns(table, timestamps=7)
        log.append_columns(table.append_column("timestamp", [pa.array([5, None], pa.int64())]))
        log.append_lists(None, [b"a", b"b"])
        log.append_lists([b"a", b"b"], None, timestamps=9)
        expected = [START_MS, START_MS, 7, 7, 5, -1, START_MS, START_MS, 9, 9]
        assert expected == [record.timestamp_ms for record in log.records()]


def test_append_columns_of_nothing_appends_nothing(directory: Path) -> None:
    """Neither a table without rows nor one without chunks."""
    with manual_log(directory) as log:
        empty = SCHEMA.empty_table()
        for info in (
            log.append_columns(empty),
            log.append_columns(pa.Table.from_batches([], SCHEMA), wait="durable"),
            log.append_lists([], []),
        ):
            assert (0, -1, 0) == (info.first_offset, info.last_offset, info.record_count)


def test_append_columns_of_a_failing_stream_appends_nothing(directory: Path) -> None:
    """All of it or none: what came before the error is not kept."""
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


def test_append_columns_refuses_what_cannot_be_stored(directory: Path) -> None:
    """Records of a table count through its chunks."""
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


def test_append_ways_refuse_mixtures(directory: Path) -> None:
    """What belongs together is of one kind and of one length."""
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


def test_append_columns_of_any_source_column_names(directory: Path) -> None:
    """Columns that an append gives anew may be there, and are passed over."""
    table = pa.table({"offset": [70], "topic": ["t"], "partition": [1], "value": [b"v"]})
    with manual_log(directory) as log:
        log.append_columns(table)
        assert [(0, b"v")] == [(each.offset, each.value) for each in log.records()]


def kinds(made: Any) -> list[Any]:
    """Return the table in every form that the interface has."""
    return [made, made.to_reader(), made.to_batches()[0], made.to_struct_array().chunk(0)]


def test_append_columns_takes_every_form_of_a_table(directory: Path) -> None:
    """Tables, readers, record batches, structures."""
    with manual_log(directory) as log:
        for source in kinds(pa.table({"key": [b"k", None], "value": ["text", ""]})):
            log.append_columns(source)
        assert [(b"k", b"text"), (None, b"")] * 4 == [(r.key, r.value) for r in log.records()]


@pytest.mark.parametrize("binary_type", ["binary", "large_binary", "binary_view"])
def test_append_columns_takes_a_scan(binary_type: Any, tmp_path: Path) -> None:
    """What one log gives as columns another takes, without an object and without pyarrow."""
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
