"""Tests of summaries of records: Kafka's vectors, verdicts of the decoders, damage."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.header import parse_header
from kafkalog._core.record import check_records, decode_records
from kafkalog._core.status import STATUS_CODES
from kafkalog._core.summary import summarize_records
from kafkalog.errors import CorruptRecordError
from kafkalog.records.codecs import decompress
from tests.support.examples import examples
from tests.support.golden import vectors

RECORDS_POSITION = 61
TIMESTAMPS = st.integers(-1, 3) | st.integers(0, 2**62)


def plain_payload(data: bytes) -> tuple[bytes, int, int]:
    """Return payload, start and end of the plain records of a batch."""
    header = parse_header(data)
    if header.codec == 0 or header.record_count == 0:
        return data, RECORDS_POSITION, len(data)
    payload = decompress(header.codec, data[RECORDS_POSITION:])
    return payload, 0, len(payload)


@pytest.mark.parametrize("case", vectors("batches")["batches"], ids=lambda case: case["name"])
def test_summary_of_kafkas_batches_equals_their_records(case: dict[str, object]) -> None:
    """Range of timestamps without -1, and null keys, of every batch vector."""
    data = bytes.fromhex(str(case["hex"]))
    records: list[dict[str, int]] = case["records"]  # type: ignore[assignment]
    stamps = [each["timestamp"] for each in records if each["timestamp"] != -1]
    payload, start, end = plain_payload(data)
    summary = summarize_records(payload, parse_header(data), start, end, strict=False)
    assert (0, end) == (summary.status, summary.position)
    expected = (min(stamps), max(stamps)) if stamps else (-1, -1)
    assert expected == (summary.min_timestamp, summary.max_timestamp)
    assert sum(each["key"] is None for each in records) == summary.null_key_count


def test_summary_verdict_on_hostile_batches_equals_check_records() -> None:
    """Status of every hostile v2 vector with plain records, strict and not."""
    seen = 0
    for case in vectors("invalid")["cases"]:
        data = bytes.fromhex(case["hex"])
        try:
            header = parse_header(data)
        except ValueError:
            continue
        except CorruptRecordError:
            continue
        if header.magic == 2 and header.codec == 0 and header.end_position <= len(data):
            for strict in (False, True):
                expected = check_records(data, header, 61, header.end_position, strict=strict)
                found = summarize_records(data, header, 61, header.end_position, strict=strict)
                assert expected == found.status, case["name"]
            seen += 1
    assert seen > 50


@settings(max_examples=examples(150))
@given(
    rows=st.lists(st.tuples(st.none() | st.binary(max_size=3), TIMESTAMPS), min_size=1, max_size=20)
)
def test_summary_equals_the_decoded_records(rows: list[tuple[bytes | None, int]]) -> None:
    """Timestamps near -1 and at both ends, keys null and empty."""
    builder = BatchBuilder()
    for key, timestamp_ms in rows:
        builder.append(key, b"v", timestamp_ms)
    data = bytes(builder.finish())
    header = parse_header(data)
    records = decode_records(data, header, RECORDS_POSITION, len(data))
    stamps = [record.timestamp_ms for record in records if record.timestamp_ms != -1]
    summary = summarize_records(data, header, RECORDS_POSITION, len(data))
    expected = (min(stamps), max(stamps)) if stamps else (-1, -1)
    assert expected == (summary.min_timestamp, summary.max_timestamp)
    assert sum(record.key is None for record in records) == summary.null_key_count


def test_summary_of_every_prefix_is_refused() -> None:
    """The buffer has exact size, so that sanitizers detect a read after its end."""
    builder = BatchBuilder()
    builder.append(b"key", b"value", 5, [("header", b"x"), ("none", None)])
    builder.append(None, None, 6)
    data = bytes(builder.finish())
    header = parse_header(data)
    for size in range(RECORDS_POSITION, len(data)):
        prefix = bytes(data[RECORDS_POSITION:size])
        summary = summarize_records(prefix, header, 0, len(prefix))
        assert summary.status == check_records(prefix, header, 0, len(prefix))
        assert summary.status != 0


def test_summary_of_trailing_bytes_is_refused() -> None:
    """After the last record, and after a header without records."""
    builder = BatchBuilder()
    builder.append(b"key", b"value", 5)
    data = bytes(builder.finish()) + b"\x00"
    summary = summarize_records(data, parse_header(data), RECORDS_POSITION, len(data))
    assert STATUS_CODES["TRAILING_BYTES"] == summary.status


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 2), (0, 4)])
def test_summary_of_a_range_outside_the_buffer_raises(start: int, end: int) -> None:
    """A mistake of the caller raises ValueError or IndexError; nothing is read."""
    builder = BatchBuilder()
    builder.append(b"key", b"value", 5)
    header = parse_header(bytes(builder.finish()))
    with pytest.raises((ValueError, IndexError)):
        summarize_records(b"abc", header, start, end)
