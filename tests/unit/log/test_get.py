"""Tests of `get`, compared with `records`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog import CorruptRecordError, OffsetOutOfRangeError
from kafkalog._core.builder import BatchBuilder
from kafkalog.files.names import SegmentFiles
from tests.support.logs import manual_log, numbered


@pytest.mark.parametrize("compression", ["producer", "gzip"])
@pytest.mark.parametrize("read_only", [False, True])
def test_get_every_offset_equals_records(tmp_path: Path, compression: str, read_only: bool) -> None:
    """Over several segments, of an open log and of a reopened one."""
    settings: dict[str, Any] = {
        "compression_type": compression,
        "segment_bytes": 2000,
        "batch_bytes": 300,
        "index_interval_bytes": 100,
    }
    path = tmp_path / "orders-0"
    with manual_log(path, **settings) as log:
        for first in range(0, 300, 20):
            log.append(numbered(first, 20))
        assert len(log.segments()) > 2
        assert list(log.records()) == [log.get(offset) for offset in range(300)]
    with manual_log(path, read_only=read_only, **settings) as log:
        assert list(log.records()) == [log.get(offset) for offset in range(300)]


def test_get_offset_without_record_returns_none(tmp_path: Path) -> None:
    """The log end, a gap between batches, and one within a batch."""
    builder = BatchBuilder()
    builder.append_at(0, b"k", b"v")
    builder.append_at(5, b"k", b"v")
    with manual_log(tmp_path / "orders-0") as log:
        log.append_batches(builder.finish(base_offset=3), assign_offsets=False)
        present = [offset for offset in range(10) if log.get(offset) is not None]
        assert [3, 8] == present


def test_get_out_of_range_raises(tmp_path: Path) -> None:
    """Below the log start and above the log end."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 5))
        log.delete_records(2)
        assert log.get(5) is None
        for offset in (-1, 1, 6):
            with pytest.raises(OffsetOutOfRangeError):
                log.get(offset)


def test_get_damaged_batch_raises_and_other_batches_are_read(tmp_path: Path) -> None:
    """A flipped bit is an error for the records of its batch only."""
    path = tmp_path / "orders-0"
    with manual_log(path) as log:
        for first in range(5):
            log.append(numbered(first, 1))
    file = SegmentFiles(path, 0).log
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with manual_log(path, read_only=True) as log:
        for offset in (0, 1, 3, 4):
            record = log.get(offset)
            assert record is not None
            assert b"v%d" % offset == record.value
        with pytest.raises(CorruptRecordError):
            log.get(2)
