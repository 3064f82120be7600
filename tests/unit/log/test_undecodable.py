"""Look-ups by time where a batch has a right CRC and cannot be decoded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import CorruptRecordError, Log, Record, UnsupportedCodecError
from kafkalog._core.crc32c import value
from kafkalog._core.header import parse_header
from kafkalog.files.names import SegmentFiles
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS

BATCHES = 4
RECORDS = 5


def batch_of(number: int) -> list[Record]:
    """Return the records of one batch: a millisecond apart, and compressible."""
    first = number * RECORDS
    return [
        Record(value=b"." * 200, timestamp_ms=START_MS + offset)
        for offset in range(first, first + RECORDS)
    ]


@pytest.fixture
def spoiled(directory: Path) -> Callable[..., Log]:
    """Return a function that damages some of four compressed batches, and opens their log."""

    def open_spoiled(*numbers: int) -> Log:
        with manual_log(directory, compression_type="gzip") as log:
            for number in range(BATCHES):
                log.append(batch_of(number))
        path = SegmentFiles(directory, 0).log
        data = bytearray(path.read_bytes())
        position = 0
        for number in range(BATCHES):
            header = parse_header(data, position)
            assert header.codec
            if number in numbers:
                data[position + 61 : header.end_position] = bytes(header.size_bytes - 61)
                crc = value(bytes(data[position + 21 : header.end_position]))
                data[position + 17 : position + 21] = crc.to_bytes(4, "big")
            position = header.end_position
        path.write_bytes(data)
        return manual_log(directory)

    return open_spoiled


@pytest.mark.parametrize(
    ("delta_ms", "expected"), [(0, 0), (4, 4), (5, 10), (7, 10), (9, 10), (12, 12)]
)
def test_time_in_an_undecodable_batch_finds_a_later_record(
    spoiled: Callable[..., Log], delta_ms: int, expected: int
) -> None:
    """The first readable record at or above the time; earlier times are not affected."""
    with spoiled(1) as log:
        found = log.offset_for_timestamp(START_MS + delta_ms)
        assert found is not None
        assert (expected, START_MS + expected) == (found.offset, found.timestamp_ms)
        with pytest.raises(CorruptRecordError):
            list(log.records())


def test_time_without_later_readable_record_is_not_found(spoiled: Callable[..., Log]) -> None:
    """As if no record had such a time."""
    with spoiled(2, 3) as log:
        assert log.offset_for_timestamp(START_MS + 10) is None
        found = log.offset_for_timestamp(START_MS + 9)
        assert found is not None
        assert 9 == found.offset


def test_time_look_up_without_codec_library_raises(
    spoiled: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To skip the batch would hide records that another installation finds."""

    def refuse(*_arguments: object, **_named: object) -> bytes:
        raise UnsupportedCodecError("gzip needs something")

    with spoiled() as log:
        monkeypatch.setattr("kafkalog.records.batch_view.decompress", refuse)
        with pytest.raises(UnsupportedCodecError):
            log.offset_for_timestamp(START_MS + 7)
