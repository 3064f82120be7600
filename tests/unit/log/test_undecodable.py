"""Looking up a time where a batch is whole by its CRC and yet cannot be decoded."""

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
    """Return the records of one batch: a millisecond apart, and worth compressing."""
    first = number * RECORDS
    return [
        Record(value=b"." * 200, timestamp_ms=START_MS + offset)
        for offset in range(first, first + RECORDS)
    ]


@pytest.fixture
def spoiled(directory: Path) -> Callable[..., Log]:
    """Return what opens a log of four compressed batches after some of them were spoiled."""

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
    ("wanted", "expected"), [(0, 0), (4, 4), (5, 10), (7, 10), (9, 10), (12, 12)]
)
def test_time_in_a_batch_that_cannot_be_decoded_is_answered_from_behind_it(
    spoiled: Callable[..., Log], wanted: int, expected: int
) -> None:
    """The first record that fits and can be read; what lies before is not touched by it."""
    with spoiled(1) as log:
        found = log.offset_for_timestamp(START_MS + wanted)
        assert found is not None
        assert (expected, START_MS + expected) == (found.offset, found.timestamp_ms)
        with pytest.raises(CorruptRecordError):
            list(log.records())


def test_time_with_nothing_readable_behind_it_is_not_found(spoiled: Callable[..., Log]) -> None:
    """As if nothing so late had been written."""
    with spoiled(2, 3) as log:
        assert log.offset_for_timestamp(START_MS + 10) is None
        found = log.offset_for_timestamp(START_MS + 9)
        assert found is not None
        assert 9 == found.offset


def test_library_that_is_missing_is_told(
    spoiled: Callable[..., Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To pass the batch over would hide what another installation finds."""

    def refuse(*_arguments: object, **_named: object) -> bytes:
        raise UnsupportedCodecError("gzip needs something")

    with spoiled() as log:
        monkeypatch.setattr("kafkalog.records.batch_view.decompress", refuse)
        with pytest.raises(UnsupportedCodecError):
            log.offset_for_timestamp(START_MS + 7)
