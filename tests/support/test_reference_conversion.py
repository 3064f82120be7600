"""Tests of the reference conversion against Kafka's conversion of the same bytes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import golden, reference
from tests.support.reference_conversion import (
    PlainBatch,
    PlainRecord,
    Unconvertible,
    decode_batch,
    decode_run,
    down_convert,
    records_in_format,
)
from tests.support.reference_messages import decode_payload

CASES = golden.vectors("conversions")["cases"]
BATCHES = golden.vectors("batches")["batches"]
TYPES = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}


def unhex(text: str | None) -> bytes | None:
    """Return the bytes of a vector's field."""
    return None if text is None else bytes.fromhex(text)


def described(batch: PlainBatch) -> dict[str, Any]:
    """Return the fields of a batch in the vectors, but for its size."""
    header = batch.header
    first = batch.records[0].offset if header.magic < 2 else header.base_offset
    types = {record.timestamp_type for record in batch.records}
    return {
        "magic": header.magic,
        "base_offset": first,
        "last_offset": header.last_offset,
        "compression": golden.CODECS[batch.codec],
        "timestamp_type": types.pop(),
        "control": batch.is_control,
        "records": list(batch.records),
    }


def expected(fact: dict[str, Any]) -> dict[str, Any]:
    """Return the same of a batch in the vectors."""
    timestamp_type = TYPES[fact["timestamp_type"]]
    records = [
        PlainRecord(
            r["offset"],
            r["timestamp"],
            timestamp_type,
            unhex(r["key"]),
            unhex(r["value"]),
            tuple((name.encode(), unhex(value)) for name, value in r["headers"]),
        )
        for r in fact["records"]
    ]
    kept = {name: value for name, value in fact.items() if name != "size"}
    return {**kept, "timestamp_type": timestamp_type, "records": records}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_reference_reads_both_sides_of_kafkas_conversions(case: dict[str, Any]) -> None:
    """Batches of all three magics, as decoded by Kafka."""
    for side in ("in", "out"):
        if side in case:
            batches = decode_run(bytes.fromhex(case[side]))
            facts = case[f"{side}_batches"]
            assert [expected(fact) for fact in facts] == [described(batch) for batch in batches]
            assert [fact["size"] for fact in facts] == [len(batch.data) for batch in batches]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_reference_converts_down_as_kafka(case: dict[str, Any]) -> None:
    """Byte for byte without compression, else equal headers and equal content."""
    data = bytes.fromhex(case["in"])
    if case["error"] is not None:
        with pytest.raises(Unconvertible):
            down_convert(data, case["to_magic"], case["first_offset"])
        return
    converted, count = down_convert(data, case["to_magic"], case["first_offset"])
    assert case["records_converted"] == count
    out = bytes.fromhex(case["out"])
    if all(fact["compression"] == "none" for fact in case["out_batches"]):
        assert out == converted
    theirs, ours = decode_run(out), decode_run(converted)
    assert [described(batch) for batch in theirs] == [described(batch) for batch in ours]
    for their, our in zip(theirs, ours, strict=True):
        assert decode_payload(their.data, their.header) == decode_payload(our.data, our.header)
        assert their.header.base_timestamp == our.header.base_timestamp


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_reference_record_rules_agree_with_kafkas_conversions(case: dict[str, Any]) -> None:
    """One record is converted as in its batch."""
    if "out" not in case:
        return
    batches = decode_run(bytes.fromhex(case["in"]))
    out = {r.offset: r for batch in decode_run(bytes.fromhex(case["out"])) for r in batch.records}
    for batch in batches:
        to_magic = min(batch.header.magic, case["to_magic"])
        for record in records_in_format(batch.records, to_magic):
            if record.offset in out:
                assert record == out[record.offset]


@pytest.mark.parametrize("case", BATCHES, ids=lambda case: case["name"])
def test_reference_reads_kafkas_batches_of_v2(case: dict[str, Any]) -> None:
    """The v2 half of the reference, with every codec, against the vectors of single batches."""
    batch = decode_batch(bytes.fromhex(case["hex"]))
    assert [
        (r["offset"], r["timestamp"], unhex(r["key"]), unhex(r["value"])) for r in case["records"]
    ] == [(r.offset, r.timestamp, r.key, r.value) for r in batch.records]
    assert reference.batch_crc(batch.data) == batch.header.crc


def test_records_in_format_lose_unsupported_fields() -> None:
    """Headers below v2, timestamp and its type in v0; no field is added upwards."""
    record = PlainRecord(7, 99, 1, b"k", None, ((b"h", b"x"),))
    v1 = PlainRecord(7, 99, 1, b"k", None)
    v0 = PlainRecord(7, -1, -1, b"k", None)
    assert ([record], [v1], [v0]) == tuple(records_in_format([record], m) for m in (2, 1, 0))
    without_time = PlainRecord(7, -1, 0, b"k", None)
    assert [without_time] == records_in_format([v0], 1) == records_in_format([v0], 2)
