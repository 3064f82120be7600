"""Tests of batch views: headers, records in four forms, errors with positions, golden batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafkalog._core.columns import RecordColumns
from kafkalog.errors import (
    CorruptRecordError,
    KafkaLogError,
    UnsupportedCodecError,
)
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec
from kafkalog.records.control import ControlType
from tests.support.golden import vectors

PATH = Path("orders-0") / "00000000000000000000.log"


def named_batch(name: str) -> bytes:
    """Bytes of a batch vector."""
    return bytes.fromhex(
        next(case["hex"] for case in vectors("batches")["batches"] if case["name"] == name)
    )


def named_hostile(name: str) -> bytes:
    """Bytes of a hostile vector."""
    return bytes.fromhex(
        next(case["hex"] for case in vectors("invalid")["cases"] if case["name"] == name)
    )


def unhex(text: str | None) -> bytes | None:
    """Bytes that a vector writes in hexadecimal, or null."""
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("case", vectors("batches")["batches"], ids=lambda case: case["name"])
def test_batch_view_of_kafkas_batches_equals_kafkas_result(case: dict[str, Any]) -> None:
    """Header, codec and every record of every batch vector, in all forms of reading."""
    view = BatchView(bytes.fromhex(case["hex"]), path=PATH, position=7)
    view.check()
    header, derived = case["header"], case["derived"]
    assert (header["base_offset"], derived["last_offset"]) == (view.base_offset, view.last_offset)
    assert derived["compression"] == view.codec.kafka_name
    assert header["record_count"] == len(view)
    expected = [
        (
            record["offset"],
            record["timestamp"],
            unhex(record["key"]),
            unhex(record["value"]),
            tuple((key, unhex(value)) for key, value in record["headers"]),
        )
        for record in case["records"]
    ]
    assert expected == [
        (record.offset, record.timestamp_ms, record.key, record.value, record.headers)
        for record in view.records(strict=False)
    ]
    pairs = [(key, value) for _, _, key, value, _ in expected]
    assert pairs == view.tuples(strict=False)
    keys, values = view.lists(strict=False)
    assert pairs == list(zip(keys, values, strict=True))


def test_batch_view_columns_point_into_the_payload() -> None:
    """Positions count from the start of the returned buffer, compressed or not."""
    for name in ("none_50_records", "zstd_50_records"):
        view = BatchView(named_batch(name))
        columns = RecordColumns(64)
        rows, payload = view.columns(columns)
        assert 50 == rows == len(columns)
        data = bytes(payload)
        starts, sizes = columns.value_position.tolist(), columns.value_size.tolist()
        found = [data[start : start + size] for start, size in zip(starts, sizes, strict=True)]
        assert [record.value for record in view.records()] == found


def test_batch_view_payload_is_decompressed_once() -> None:
    """Four forms of reading one batch share one decompression."""
    view = BatchView(named_batch("gzip_50_records"))
    first, second = view.payload(), view.payload()
    assert first[0] is second[0]
    assert (0, len(bytes(first[0]))) == first[1:]


def test_batch_view_control_records_are_decoded() -> None:
    """Commit with its coordinator's epoch; an emptied control batch has no marker."""
    control = BatchView(named_batch("control_commit_coordinator_epoch_17")).control_records()
    assert [(ControlType.COMMIT, {"coordinatorEpoch": 17})] == [
        (each.type, each.fields) for each in control
    ]
    assert [] == BatchView(named_batch("empty_retained_control")).control_records()


def test_batch_view_limit_bounds_the_decompressed_size() -> None:
    """The error is that of the view, with its position; a higher limit reads the same batch."""
    view = BatchView(named_hostile("zstd_bomb_32MiB"), path=PATH, position=7)
    with pytest.raises(CorruptRecordError, match="more than 1048576 bytes") as caught:
        view.records(limit_bytes=1 << 20)
    assert (str(PATH), 7) == (caught.value.path, caught.value.position)
    assert 1 == len(view.records(limit_bytes=1 << 26))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("count_4_of_3", "orders-0"),
        ("gzip_garbage", "gzip data: "),
        ("snappy_truncated", "snappy data: "),
        ("lz4_not_compressed", "lz4 data: "),
        ("zstd_empty", "zstd data: "),
        ("value_length_beyond", "runs past its record"),
        ("offset_deltas_repeat", "do not rise"),
    ],
)
def test_batch_view_errors_name_file_position_and_offset(name: str, why: str) -> None:
    """As attributes and in the message, for each form of reading."""
    view = BatchView(named_hostile(name), path=PATH, position=4096)
    for read in (view.records, view.tuples, view.lists, view.check_records):
        with pytest.raises(CorruptRecordError, match=why) as caught:
            read()
        error = caught.value
        assert (str(PATH), 4096, view.base_offset) == (
            error.path,
            error.position,
            error.base_offset,
        )
        assert str(PATH) in str(error)
        assert "4096" in str(error)


def test_batch_view_repeated_offset_deltas_are_read_on_request() -> None:
    """Batches that Kafka stored remain readable."""
    view = BatchView(named_hostile("offset_deltas_repeat"))
    assert 3 == len(view.records(strict=False))


def test_batch_view_wrong_crc_is_found_by_check_only() -> None:
    """Reading does not compute a checksum; `check` does."""
    view = BatchView(named_hostile("payload_bit_flipped"), path=PATH, position=1)
    assert 3 == len(view.records())
    with pytest.raises(CorruptRecordError, match="the CRC does not match") as caught:
        view.check()
    assert 1 == caught.value.position


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("length_48", CorruptRecordError),
        ("magic_3", CorruptRecordError),
        ("only_60_bytes", CorruptRecordError),
    ],
)
def test_batch_view_bad_header_raises_at_once(name: str, error: type[KafkaLogError]) -> None:
    """There is no view without a header."""
    with pytest.raises(error) as caught:
        BatchView(named_hostile(name), path=PATH, position=9)
    assert (str(PATH), 9) == (caught.value.path, caught.value.position)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_batch_view_unknown_codec_raises_when_records_are_read(codec: int) -> None:
    """The header is readable nevertheless."""
    view = BatchView(named_hostile(f"codec_{codec}"), path=PATH)
    assert 3 == len(view)
    with pytest.raises(UnsupportedCodecError, match=f"codec must be 0 to 4, got {codec}"):
        view.records()


def test_batch_view_repr_shows_its_metadata() -> None:
    """Offsets, count, codec, position."""
    view = BatchView(named_batch("lz4_3_records"), position=5)
    assert Codec.LZ4 is view.codec
    assert "lz4" in repr(view)
    assert "3 records" in repr(view)
    assert "at 5" in repr(view)


@pytest.mark.parametrize("name", ["none_3_records", "lz4_3_records"])
def test_batch_view_truncated_anywhere_raises_typed_errors(name: str) -> None:
    """A batch without its end is corrupt, whatever its length; HOST-13."""
    whole = named_batch(name)
    for size in range(1, len(whole)):
        for ask in ("records", "tuples", "lists", "check_records"):
            with pytest.raises(CorruptRecordError):
                getattr(BatchView(whole[:size], path=PATH), ask)()
