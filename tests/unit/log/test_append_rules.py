"""Records that the settings of a log refuse, for each append API."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog import (
    AppendInfo,
    AppendOrigin,
    BytesColumn,
    InvalidRecordError,
    InvalidTimestampError,
    Log,
    Record,
    RecordValidationError,
    Rewriting,
)
from kafkalog._core.builder import BatchBuilder
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS

Rows = list[tuple[bytes | None, int]]


def by_records(log: Log, rows: Rows) -> AppendInfo:
    """Append one Record for each row."""
    return log.append([Record(key=key, value=b"v", timestamp_ms=time) for key, time in rows])


def by_lists(log: Log, rows: Rows) -> AppendInfo:
    """Append two lists and an array of timestamps."""
    times = np.array([time for _, time in rows], dtype=np.int64)
    return log.append_columns([key for key, _ in rows], [b"v"] * len(rows), timestamps=times)


def by_columns(log: Log, rows: Rows) -> AppendInfo:
    """Append columns in Arrow's layout."""
    keys = [key or b"" for key, _ in rows]
    ends = np.cumsum([0, *map(len, keys)], dtype=np.int32)
    present = np.packbits([key is not None for key, _ in rows], bitorder="little")
    times = np.array([time for _, time in rows], dtype=np.int64)
    column = BytesColumn(b"".join(keys), ends, present)
    return log.append_columns(column, None, timestamps=times)


def by_batches(log: Log, rows: Rows) -> AppendInfo:
    """Append one encoded batch."""
    builder = BatchBuilder()
    for key, time in rows:
        builder.append(key, b"v", time)
    return log.append_batches(builder.finish())


APPEND_APIS = pytest.mark.parametrize("append", [by_records, by_lists, by_columns, by_batches])
AppendApi = Callable[[Log, Rows], AppendInfo]


@APPEND_APIS
def test_append_null_key_to_compacted_log_is_refused(directory: Path, append: AppendApi) -> None:
    """The error lists every such record, and nothing is appended. An empty key is valid."""
    good: Rows = [(b"a", START_MS), (b"", START_MS)]
    with manual_log(directory, cleanup_policy=("compact", "delete"), batch_bytes=90) as log:
        with pytest.raises(RecordValidationError, match="it has no key") as caught:
            append(log, [*good, (None, START_MS), *good, (None, START_MS)])
        assert [2, 5] == [each.index for each in caught.value.record_errors]
        assert 0 == log.log_end_offset
        assert 1 == append(log, good).last_offset
    with manual_log(directory.with_name("free-0")) as log:
        assert 0 == append(log, [(None, START_MS)]).last_offset


@APPEND_APIS
def test_append_timestamp_out_of_bounds_is_refused(directory: Path, append: AppendApi) -> None:
    """Bounds are inclusive. Records without a timestamp pass, and so does LogAppendTime."""
    limits: dict[str, Any] = {
        "message_timestamp_before_max_ms": 10,
        "message_timestamp_after_max_ms": 20,
    }
    good: Rows = [(b"a", START_MS - 10), (b"b", START_MS + 20)]
    if append is not by_records:
        good.append((b"c", -1))
    with manual_log(directory, **limits) as log:
        assert START_MS + 20 == append(log, good).max_timestamp_ms
        for wrong in (START_MS - 11, START_MS + 21):
            with pytest.raises(InvalidTimestampError, match=str(wrong)) as caught:
                append(log, [*good, (b"d", wrong)])
            assert [len(good)] == [each.index for each in caught.value.record_errors]
        assert len(good) == log.log_end_offset
    append_time = {**limits, "message_timestamp_type": "LogAppendTime"}
    with manual_log(directory.with_name("append-time-0"), **append_time) as log:
        info = append(log, [(b"a", START_MS - 11), (b"b", START_MS + 21)])
        assert (START_MS, 1) == (info.max_timestamp_ms, info.shallow_offset_of_max_timestamp)


def test_append_invalid_record_index_counts_over_all_batches(directory: Path) -> None:
    """The records fill several batches; an index is the position in the caller's list."""
    records = numbered(0, 100)
    records[3] = records[77] = Record(value=b"x")
    with manual_log(directory, cleanup_policy=("compact",), batch_bytes=200) as log:
        with pytest.raises(RecordValidationError) as caught:
            log.append(records)
        assert [3, 77] == [each.index for each in caught.value.record_errors]


def test_append_batches_origin_limits_batches_and_offsets(directory: Path) -> None:
    """Only the program itself may append several batches; only replication keeps offsets."""
    builder = BatchBuilder()
    builder.append(b"k", b"v", START_MS)
    first, later = bytes(builder.finish()), bytes(builder.finish(base_offset=9))
    with manual_log(directory) as log:
        assert 1 == log.append_batches(first * 2).last_offset
        with pytest.raises(InvalidRecordError, match="a second batch"):
            log.append_batches(first * 2, origin=AppendOrigin.CLIENT)
        assert 2 == log.append_batches(first, origin=AppendOrigin.CLIENT).last_offset
        assert 9 == log.append_batches(later, origin=AppendOrigin.REPLICATION).last_offset
        with pytest.raises(ValueError, match="origin must be REPLICATION"):
            log.append_batches(first, origin=AppendOrigin.CLIENT, assign_offsets=False)


def test_append_batches_recompressed_reads_back(directory: Path) -> None:
    """The batch on disk has the codec of the log, and the info reports the recompression."""
    builder = BatchBuilder()
    for record in numbered(0, 100):
        builder.append(record.key, record.value, record.timestamp_ms)
    with manual_log(directory, compression_type="zstd") as log:
        info = log.append_batches(builder.finish())
        assert Rewriting(0, 4, 1) == info.rewriting
        assert [4] == [batch.header.codec for batch in log.batches(0)]
        assert [record.value for record in numbered(0, 100)] == [
            record.value for record in log.records()
        ]
        assert info.size_bytes == log.segments()[0].size_bytes
