"""Tests of conversion between formats: Kafka's own cases, and the slow reference."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import scan_batches
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.header import parse_header
from kafkalog._core.status import STATUS_CODES
from kafkalog.errors import (
    ConfigError,
    CorruptRecordError,
    InvalidRecordError,
    UnsupportedCodecError,
)
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, compress
from kafkalog.records.conversion.conversion_units import FileRecords
from kafkalog.records.conversion.convert import convert_batches, convert_runs
from kafkalog.records.conversion.options import ConversionOptions
from kafkalog.records.conversion.report import ConversionReport
from tests.support import golden
from tests.support.damage import fix_crc
from tests.support.reference_conversion import (
    PlainBatch,
    PlainRecord,
    decode_run,
    down_convert,
    records_in_format,
)
from tests.support.reference_messages import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    Message,
    decode_payload,
    encode_set,
)

CASES = golden.vectors("conversions")["cases"]
VECTORS = [bytes.fromhex(case["hex"]) for case in golden.vectors("batches")["batches"]]
OLD_SETS = [
    bytes.fromhex(case["hex"])
    for case in golden.vectors("legacy")["sets"]
    if all(message["valid"] for message in case["messages"])
]
T = 1_700_000_000_000
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]


def plain(data: bytes) -> list[PlainRecord]:
    """Return all records of a run, by the reference."""
    return [record for batch in decode_run(data) for record in batch.records]


def inside(batch: PlainBatch) -> tuple[Any, ...]:
    """Return the parts of an old batch that are equal for any writer: all but compressed bytes."""
    header = batch.header
    return (
        header.magic,
        header.base_offset,
        header.attributes,
        header.base_timestamp,
        decode_payload(batch.data, header),
    )


def v2_batch(
    records: Sequence[tuple[int, bytes | None, bytes | None, int]],
    *,
    codec: Codec = Codec.NONE,
    **fields: Any,
) -> bytes:
    """Return a batch of (offset delta, key, value, timestamp), base offset 1000."""
    builder = BatchBuilder()
    for delta, key, value, timestamp in records:
        builder.append_at(delta, key, value, timestamp, [("h", b"x")])
    batch = bytes(builder.finish(base_offset=1000, **fields))
    return convert_batches(batch, 2, codec=codec).data


# ---- down


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_down_conversion_equals_kafkas(case: dict[str, Any]) -> None:
    """Every case of the vectors, byte for byte where nothing is compressed."""
    data = bytes.fromhex(case["in"])
    if case["error"] is not None:
        with pytest.raises(UnsupportedCodecError, match="zstd"):
            convert_batches(data, case["to_magic"], first_offset=case["first_offset"])
        return
    result = convert_batches(data, case["to_magic"], first_offset=case["first_offset"])
    assert case["records_converted"] == result.report.records_converted
    assert len(data) == result.report.source_bytes
    assert len(result.data) == result.report.result_bytes
    out = bytes.fromhex(case["out"])
    if all(fact["compression"] == "none" for fact in case["out_batches"]):
        assert out == result.data
    assert list(map(inside, decode_run(out))) == list(map(inside, decode_run(result.data)))


@pytest.mark.parametrize("magic", [0, 1])
def test_down_conversion_reports_lost_data(magic: int) -> None:
    """Each kind of loss has its count; data that was absent is not counted."""
    producer: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 1,
        "base_sequence": 3,
        "transactional": True,
    }
    data = v2_batch([(0, b"k", b"v", T), (4, None, None, -1)], partition_leader_epoch=5, **producer)
    report = convert_batches(data, magic).report
    expected = {
        "headers_lost": 2,
        "producer_states_lost": 1,
        "transactional_flags_lost": 1,
        "leader_epochs_lost": 1,
    }
    if magic == 0:
        expected["timestamps_lost"] = 1
    assert expected == report.losses()
    assert (1, 2) == (report.source_batches, report.records_converted)


def test_down_conversion_counts_delete_horizons_and_empty_batches() -> None:
    """Emptied batches of a compaction have no older form."""
    builder = BatchBuilder()
    builder.reset(base_timestamp=T + 86_400_000)
    builder.append(b"k", None, T)
    horizon = bytes(builder.finish(base_offset=5, delete_horizon=True))
    builder.reset()
    empty = bytes(builder.finish(base_offset=9, last_offset_delta=3, max_timestamp=T))
    result = convert_batches(horizon + empty, 1)
    assert {"delete_horizons_lost": 1} == result.report.losses()
    assert 1 == result.report.empty_batches_dropped
    assert [PlainRecord(5, T, CREATE_TIME, b"k", None)] == plain(result.data)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_down_conversion_with_a_codec_converts_zstd_too(codec: Codec) -> None:
    """A given codec applies to all records."""
    records = [(number, b"key", b"value" * 20, T + number) for number in range(5)]
    result = convert_batches(v2_batch(records, codec=Codec.ZSTD), 1, codec=codec)
    assert [(1000 + n, T + n) for n in range(5)] == [
        (record.offset, record.timestamp) for record in plain(result.data)
    ]
    assert {int(codec)} == {batch.codec for batch in decode_run(result.data)}


def test_down_conversion_copies_messages_below_the_start_unchanged() -> None:
    """Messages of an old enough format are copied, whatever the first offset."""
    old = encode_set([Message(offset, 0, 0, -1, b"k", b"v") for offset in range(5)])
    result = convert_batches(old, 1, first_offset=3)
    assert old == result.data
    assert (5, 0) == (result.report.batches_copied, result.report.records_below_start)


# ---- up


@pytest.mark.parametrize("codec", [None, *Codec])
@pytest.mark.parametrize("data", OLD_SETS, ids=lambda data: data[:24].hex())
def test_up_conversion_keeps_every_record_of_kafkas_old_sets(
    data: bytes, codec: Codec | None
) -> None:
    """Offsets, times, keys and values of every valid legacy vector, in every codec."""
    result = convert_batches(data, 2, codec=codec)
    assert records_in_format(plain(data), 2) == plain(result.data)
    assert STATUS_CODES["OK"] == scan_batches(result.data).status
    assert {} == result.report.losses()


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_wrapper_becomes_one_batch_with_its_offsets(magic: int, codec: Codec) -> None:
    """Base offset is the first record's, last offset the wrapper's; the codec stays."""
    messages = [
        Message(offset, magic, 0, -1 if magic == 0 else T - offset, b"k", b"value" * 9)
        for offset in (100, 103, 104, 110)
    ]
    data = encode_set(messages, codec=int(codec))
    converted = convert_batches(data, 2).data
    header = parse_header(converted)
    assert len(converted) == header.size_bytes
    assert (100, 110, 4) == (header.base_offset, header.last_offset, header.record_count)
    assert int(codec) == header.codec
    assert (-1, -1, -1) == (
        header.partition_leader_epoch,
        header.producer_id,
        header.base_sequence,
    )
    assert (-1 if magic == 0 else T - 100) == header.max_timestamp


def test_plain_messages_are_merged_up_to_the_size() -> None:
    """Also across two formats and two runs of a large log."""
    old = encode_set([Message(n, 0, 0, -1, None, bytes(50)) for n in range(20)])
    newer = encode_set([Message(n, 1, 0, T, None, bytes(50)) for n in range(20, 40)])
    options = ConversionOptions(2, batch_bytes=1000)
    runs = [FileRecords(memoryview(old)), FileRecords(memoryview(newer))]
    sizes = [memoryview(piece).nbytes for piece in convert_runs(runs, options)]
    assert all(900 < size <= 1000 for size in sizes[:-1])
    converted = b"".join(map(bytes, convert_runs(runs, options)))
    assert 40 == len(plain(converted))
    whole = convert_batches(old + newer, 2).data
    assert len(whole) == parse_header(whole).size_bytes
    assert records_in_format(plain(old + newer), 2) == plain(converted) == plain(whole)


def test_plain_messages_with_append_time_are_merged_if_it_is_equal() -> None:
    """In v2 the append time is that of the batch."""
    data = b"".join(
        encode_set(
            [Message(offset, 1, 0, -1, b"k", b"v")],
            timestamp_type=LOG_APPEND_TIME,
            append_time=time,
        )
        for offset, time in enumerate([T, T, T + 1, T])
    )
    data += encode_set([Message(4, 1, 0, T, b"k", b"v")])
    converted = convert_batches(data, 2).data
    assert [2, 1, 1, 1] == [len(batch.records) for batch in decode_run(converted)]
    assert plain(data) == plain(converted)


def test_wrapper_between_plain_messages_keeps_its_position() -> None:
    """The batch under construction is closed before it."""
    first = encode_set([Message(n, 1, 0, T, b"k", b"v") for n in range(3)])
    wrapper = encode_set([Message(n, 1, 0, T, b"k", b"v" * 90) for n in (5, 6)], codec=1)
    last = encode_set([Message(n, 1, 0, T, b"k", b"v") for n in (7, 9)])
    converted = convert_batches(first + wrapper + last, 2).data
    assert [(0, 2), (5, 6), (7, 9)] == [
        (batch.header.base_offset, batch.header.last_offset) for batch in decode_run(converted)
    ]


def test_gap_wider_than_a_batch_begins_another_batch() -> None:
    """Offset deltas have 31 bits; a compacted log may have any gaps."""
    offsets = [0, 2**31 - 1, 2**31, 2**40]
    data = encode_set([Message(offset, 1, 0, T, b"k", b"v") for offset in offsets])
    converted = convert_batches(data, 2).data
    assert offsets == [record.offset for record in plain(converted)]
    assert 3 == len(decode_run(converted))


def quirky_wrapper(count: int) -> bytes:
    """Return a wrapper at offset 0 around offsets 0 to count - 1."""
    messages = [Message(offset, 1, 0, T, b"k", b"v" * 50) for offset in range(count)]
    return bytes(8) + encode_set(messages, codec=1)[8:]


def test_wrapper_at_offset_0_with_later_offsets_inside_keeps_them() -> None:
    """Its base is forced to 0; the v2 batch has the offset that the wrapper lacked."""
    result = convert_batches(quirky_wrapper(3), 2)
    assert [(0, 2)] == [
        (batch.header.base_offset, batch.header.last_offset) for batch in decode_run(result.data)
    ]
    assert [0, 1, 2] == [record.offset for record in plain(result.data)]


@pytest.mark.parametrize("magic", [0, 2])
def test_records_below_those_of_the_wrapper_before_are_refused(magic: int) -> None:
    """Rising offsets of entries do not prove rising offsets of records."""
    next_one = encode_set([Message(1, 1, 0, T, b"k", b"v")])
    with pytest.raises(CorruptRecordError, match="below") as caught:
        convert_batches(quirky_wrapper(3) + next_one, magic)
    assert len(quirky_wrapper(3)) == caught.value.position


def test_impossible_record_count_is_refused_before_allocation() -> None:
    """A header may claim two thousand million records in a hundred bytes."""
    data = bytearray(v2_batch([(n, b"k", b"v" * 90, T) for n in range(5)], codec=Codec.GZIP))
    struct.pack_into(">i", data, 23, 2**31 - 2)
    struct.pack_into(">i", data, 57, 2**31 - 1)
    with pytest.raises(CorruptRecordError, match="record count"):
        convert_batches(fix_crc(bytes(data)), 1)


def test_timestamp_below_minus_1_is_refused_for_v2() -> None:
    """No broker has accepted such a message."""
    data = encode_set([Message(0, 1, 0, -5, b"k", b"v")])
    with pytest.raises(InvalidRecordError, match="-5"):
        convert_batches(data, 2)


# ---- v2 to v2


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", VECTORS, ids=range(len(VECTORS)))
def test_recompression_changes_the_codec_only(data: bytes, codec: Codec) -> None:
    """Every v2 vector: control, transactional, empty, with gaps, with a delete horizon."""
    before = parse_header(data)
    converted = convert_batches(data, 2, codec=codec).data
    after = parse_header(converted)
    assert plain(data) == plain(converted)
    for name in (
        "base_offset",
        "last_offset",
        "partition_leader_epoch",
        "base_timestamp",
        "max_timestamp",
        "producer_id",
        "producer_epoch",
        "base_sequence",
        "record_count",
        "timestamp_type",
        "is_transactional",
        "is_control",
        "delete_horizon_ms",
    ):
        assert getattr(before, name) == getattr(after, name), name
    if before.is_control or before.record_count == 0 or before.codec == codec:
        assert data == converted
    assert after.codec in (int(codec), int(Codec.NONE), before.codec)


def test_v2_without_a_codec_is_copied() -> None:
    """No conversion is needed."""
    result = convert_batches(VECTORS[0], 2)
    assert VECTORS[0] == result.data
    assert (1, 0) == (result.report.batches_copied, result.report.records_converted)


def test_level_recompresses_batches_of_the_same_codec() -> None:
    """A given level always applies; without a level an equal codec is enough."""
    records = [(number, b"key-%d" % number, b"value" * 20, T) for number in range(200)]
    data = v2_batch(records, codec=Codec.ZSTD)
    assert data == convert_batches(data, 2, codec=Codec.ZSTD).data
    anew = convert_batches(data, 2, codec=Codec.ZSTD, level=19)
    assert 200 == anew.report.records_converted
    assert plain(data) == plain(anew.data)


def test_incompressible_batch_is_left_uncompressed() -> None:
    """A codec adds some bytes to content that it cannot compress."""
    data = v2_batch([(0, b"k", b"v", T)])
    result = convert_batches(data, 2, codec=Codec.GZIP)
    assert data == result.data
    assert (1, 0) == (result.report.batches_copied, result.report.records_converted)


# ---- options and bad input


def test_contradictory_options_are_refused() -> None:
    """Before a byte is read."""
    with pytest.raises(ValueError, match="magic must be 0, 1 or 2, got 3"):
        convert_batches(b"", 3)
    with pytest.raises(UnsupportedCodecError, match="zstd"):
        convert_batches(b"", 1, codec=Codec.ZSTD)
    with pytest.raises(ConfigError, match="level"):
        convert_batches(b"", 2, level=3)


def test_empty_run_converts_to_an_empty_run() -> None:
    """An empty run is a run."""
    result = convert_batches(b"", 2)
    assert (b"", 0) == (result.data, result.report.source_batches)


@pytest.mark.parametrize("cut", [1, 30])
def test_truncated_batch_is_refused_with_its_position(cut: int) -> None:
    """Whole batches only; the error has the first byte of the batch."""
    data = VECTORS[0] + encode_set([Message(10**6, 1, 0, T, b"k", b"v")])
    with pytest.raises(CorruptRecordError) as caught:
        convert_batches(data[:-cut], 2)
    assert len(VECTORS[0]) == caught.value.position


def test_damaged_batch_is_refused() -> None:
    """Every CRC is checked."""
    data = bytearray(VECTORS[0])
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        convert_batches(data, 2)


def test_offsets_not_rising_are_refused() -> None:
    """Also from one run to the next."""
    data = encode_set([Message(5, 1, 0, T, b"k", b"v")])
    with pytest.raises(CorruptRecordError, match="below"):
        convert_batches(data + data, 2)
    runs = [FileRecords(memoryview(data)), FileRecords(memoryview(data))]
    with pytest.raises(CorruptRecordError, match="below"):
        list(convert_runs(runs, ConversionOptions(2)))


def test_refused_batches_can_be_replaced() -> None:
    """A callback returns the bytes in their place; the batches around them are converted."""
    good = encode_set([Message(n, 1, 0, T, b"k", b"v") for n in range(3)])
    bad = encode_set([Message(3, 1, 0, -7, b"k", b"v")])
    wrapper = encode_set([Message(n, 1, 0, -7, b"k", b"v" * 50) for n in (4, 5)], codec=1)
    last = encode_set([Message(6, 1, 0, T, b"k", b"v")])
    stretches: list[tuple[int, int]] = []

    def refuse(run: FileRecords, stretch: Any, error: Exception) -> None:
        stretches.append((stretch.start, stretch.end))

    run = FileRecords(memoryview(good + bad + wrapper + last))
    pieces = list(convert_runs([run], ConversionOptions(2), on_refused=refuse))
    converted = b"".join(map(bytes, pieces))
    assert [0, 1, 2, 6] == [record.offset for record in plain(converted)]
    start = len(good)
    middle = start + len(bad)
    assert [(start, middle), (middle, middle + len(wrapper))] == stretches


def test_refused_message_drops_no_earlier_messages() -> None:
    """Messages that wait to be merged are converted first."""
    first = encode_set([Message(n, 1, 0, T, b"k", b"v") for n in range(3)])
    bad = encode_set(
        [Message(3, 1, 0, T, b"k", b"v")], timestamp_type=LOG_APPEND_TIME, append_time=-9
    )
    last = encode_set([Message(4, 1, 0, T, b"k", b"v")])
    reasons: list[str] = []
    options = ConversionOptions(2, batch_bytes=100)
    run = FileRecords(memoryview(first + bad + last))
    pieces = convert_runs(
        [run], options, on_refused=lambda _run, _at, why: reasons.append(str(why))
    )
    converted = b"".join(map(bytes, pieces))
    assert [0, 1, 2, 4] == [record.offset for record in plain(converted)]
    assert 1 == len(reasons)


def test_report_counts_sizes_by_codec() -> None:
    """Before and after, each batch under its codec; the sums are the total sizes."""
    old = encode_set([Message(n, 1, 0, T, b"k", b"v" * 200) for n in range(3)])
    wrapper = encode_set([Message(n, 1, 0, T, b"k", b"v" * 900) for n in (3, 4)], codec=1)
    report = convert_batches(old + wrapper, 2).report
    assert {"none": len(old), "gzip": len(wrapper)} == report.source_bytes_by_codec
    assert {"none", "gzip"} == set(report.result_bytes_by_codec)
    report = convert_batches(old + wrapper, 2, codec=Codec.ZSTD).report
    assert {"zstd": report.result_bytes} == report.result_bytes_by_codec
    total = ConversionReport()
    total.add(report)
    total.add(report)
    assert 2 * report.source_bytes == total.source_bytes
    assert 2 * report.records_converted == total.records_converted == 10
    assert total.as_dict()["source_bytes_by_codec"] == {
        "none": 2 * len(old),
        "gzip": 2 * len(wrapper),
    }


# ---- whatever comes


@st.composite
def message_runs(draw: st.DrawFn) -> bytes:
    """Return message sets of both old formats and all their codecs, offsets rising with holes."""
    data = b""
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        magic = draw(st.integers(0, 1))
        append_time = draw(st.booleans()) if magic else False
        messages = []
        for _ in range(draw(st.integers(1, 5))):
            timestamp = draw(st.integers(-1, 2**41)) if magic else -1
            field = st.none() | st.binary(max_size=40)
            messages.append(Message(offset, magic, 0, timestamp, draw(field), draw(field)))
            offset += draw(st.integers(1, 3))
        data += encode_set(
            messages,
            codec=int(draw(st.sampled_from(OLD_CODECS))),
            timestamp_type=LOG_APPEND_TIME if append_time else CREATE_TIME,
            append_time=draw(st.integers(0, 2**41)) if append_time else -1,
        )
    return data


@settings(max_examples=60)
@given(message_runs(), st.none() | st.sampled_from(list(Codec)), st.integers(100, 400))
def test_any_old_messages_convert_up_as_in_the_reference(
    data: bytes, codec: Codec | None, batch_bytes: int
) -> None:
    """Any mixture of formats, codecs and timestamp types."""
    result = convert_batches(data, 2, codec=codec, batch_bytes=batch_bytes)
    assert records_in_format(plain(data), 2) == plain(result.data)
    assert STATUS_CODES["OK"] == scan_batches(result.data).status


@settings(max_examples=60)
@given(message_runs(), st.integers(0, 1), st.integers(0, 20))
def test_any_messages_convert_down_as_in_the_reference(data: bytes, magic: int, first: int) -> None:
    """From all three formats: the drawn messages, and their conversion up."""
    start = plain(data)[0].offset
    up = convert_batches(data, 2).data
    for source in (data, up):
        expected, count = down_convert(source, magic, start + first)
        result = convert_batches(source, magic, first_offset=start + first)
        assert list(map(inside, decode_run(expected))) == list(map(inside, decode_run(result.data)))
        assert count == result.report.records_converted


@settings(max_examples=40)
@given(message_runs())
def test_conversion_up_and_down_keeps_the_records(data: bytes) -> None:
    """Data that v1 can hold survives both conversions."""
    back = convert_batches(convert_batches(data, 2).data, 1).data
    assert records_in_format(plain(data), 1) == plain(back)


@pytest.mark.parametrize("magic", [0, 1])
def test_golden_v2_batches_round_trip_through_the_old_format(magic: int) -> None:
    """A broker's transactions, headers and codecs: equal but for the reported losses."""
    for name in ("transactions-0", "gzip-0", "compact-txn-0", "logappendtime-0"):
        data = b"".join(
            path.read_bytes()
            for path in sorted((golden.data_directory(golden.CLEAN) / name).glob("*.log"))
        )
        # Some of it is zstd, which an old format can only hold under another codec.
        result = convert_batches(data, magic, codec=Codec.LZ4)
        batches = decode_run(data)
        records = [r for batch in batches if not batch.is_control for r in batch.records]
        assert records_in_format(records, magic) == plain(result.data)
        report = result.report
        assert sum(batch.is_control for batch in batches) == report.control_batches_dropped
        assert sum(len(record.headers) for record in records) == report.headers_lost
        assert len(records) == report.records_converted


def test_view_and_conversion_agree_on_an_unreadable_wrapper() -> None:
    """A wrapper with unreadable content is refused with file, position and offset."""
    data = encode_set([Message(4, 1, 0, T, b"k", b"v" * 50)], codec=1)
    header = parse_header(data)
    inner = bytearray(decode_payload(data, decode_run(data)[0].header))
    inner[-1] ^= 1
    lying = Message(4, 1, header.attributes, T, None, compress(Codec.GZIP, bytes(inner)))
    run = FileRecords(memoryview(encode_set([lying])), "some.log", 700)
    with pytest.raises(CorruptRecordError, match=r"some\.log") as caught:
        list(convert_runs([run], ConversionOptions(2)))
    assert 700 == caught.value.position
    with pytest.raises(CorruptRecordError):
        BatchView(run.data).records()
