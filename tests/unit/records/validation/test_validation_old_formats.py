"""Tests of appends of or to an old message format: accepted and stored bytes, and answers."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import scan_batches
from kafkalog._core.header import parse_header
from kafkalog._engine.append_info import assign_run_offsets
from kafkalog.config import LogConfig
from kafkalog.errors import (
    InvalidRecordError,
    KafkaLogError,
    OffsetsOutOfOrderError,
    RecordValidationError,
)
from kafkalog.model import AppendOrigin, Rewriting
from kafkalog.records.codecs import Codec
from tests.support import reference_codecs as codecs
from tests.support.encoded_batches import (
    NOW_MS,
    BatchSpec,
    batch,
    validate_as_follower,
    validate_as_leader,
)
from tests.support.golden import vectors
from tests.support.old_appends import LONG, RELEASES, config, messages, positions, wrapper
from tests.support.reference_leader import LeaderLog, expected, stored
from tests.support.reference_messages import Message, encode_message, encode_messages, encode_set

# Refused here, accepted by Kafka's leader.
STRICTER = {
    "size_beyond": "what is left over of the bytes is no message",
    "value_size_short": "nobody declares the bytes behind the value",
    "wrapper_inner_truncated": "the last message would be lost unsaid",
}


# -- Kafka's verdicts and Kafka's sets ---------------------------------------------------------


def old_cases() -> list[Any]:
    """The hostile vectors of the old formats."""
    cases = [case for case in vectors("invalid")["cases"] if case["name"][:2] in ("v0", "v1")]
    return [pytest.param(case, id=case["name"]) for case in cases]


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("origin", [AppendOrigin.EMBEDDED, AppendOrigin.CLIENT])
@pytest.mark.parametrize("case", old_cases())
def test_old_messages_verdict_equals_kafkas_leader(
    case: dict[str, Any], origin: AppendOrigin, magic: int
) -> None:
    """For a log of each format; the error has the position, and accepted batches are readable."""
    refused = case["leader_append"]["error"] is not None
    if case["name"][3:] in STRICTER:
        assert not refused
        refused = True
    if case["name"] == "v1_timestamp_negative" and magic < 2:
        # v1 keeps the message with -1, as Kafka does in place; v0 has none.
        refused = False
    data = bytes.fromhex(case["hex"])
    if refused:
        with pytest.raises(KafkaLogError) as caught:
            validate_as_leader(data, config(magic), NOW_MS, origin)
        names_records = isinstance(caught.value, RecordValidationError)
        assert names_records or caught.value.position == 0
        return
    run = validate_as_leader(data, config(magic), NOW_MS, origin)
    info = assign_run_offsets(run, 1000, 3)
    assert case["leader_append"].get("log_end_offset", 1) == info.record_count
    assert (0, 1000 + info.record_count) == (
        scan_batches(run.data).status,
        scan_batches(run.data).next_offset,
    )
    assert {magic} == {entry.magic for entry in stored(bytes(run.data))}


@pytest.mark.parametrize("case", old_cases())
def test_old_messages_of_a_follower_verdict_equals_kafkas(case: dict[str, Any]) -> None:
    """Size, checksum and known codec; accepted batches are unchanged."""
    data = bytes.fromhex(case["hex"])
    is_cut = case["name"][3:] == "size_beyond"
    if case["follower_append"]["error"] is not None or is_cut:
        with pytest.raises(KafkaLogError):
            validate_as_follower(data, LogConfig())
        return
    run = validate_as_follower(data, LogConfig())
    assign_run_offsets(run, 0, 5)
    assert data == bytes(run.data)


SETS = [
    pytest.param(bytes.fromhex(case["hex"]), id=case["name"]) for case in vectors("legacy")["sets"]
]


@pytest.mark.parametrize("release", list(RELEASES))
@pytest.mark.parametrize("data", SETS)
def test_kafkas_old_sets_are_accepted_by_a_log_of_every_format(data: bytes, release: int) -> None:
    """Records in order with new offsets; timestamps if the format has them."""
    changes = {"message_timestamp_after_max_ms": 2**63 - 1}
    source = [record for entry in stored(data) for record in entry.records]
    claims = any(record.timestamp_type == 1 for record in source)
    run = validate_as_leader(data, config(release, **changes), NOW_MS)
    info = assign_run_offsets(run, 70, 1)
    result = [record for entry in stored(bytes(run.data)) for record in entry.records]
    assert [(record.key, record.value) for record in source] == [
        (record.key, record.value) for record in result
    ]
    assert list(range(70, 70 + len(source))) == [record.offset for record in result]
    assert (70, 69 + len(source)) == (info.first_offset, info.last_offset)
    if not claims:
        times = [record.timestamp if release else -1 for record in source]
        assert times == [record.timestamp for record in result]


@pytest.mark.parametrize("data", SETS)
def test_kafkas_old_sets_are_stored_unchanged_by_a_follower(data: bytes) -> None:
    """Offsets, number and the largest timestamp include the content of wrappers."""
    source = [record for entry in stored(data) for record in entry.records]
    run = validate_as_follower(data, LogConfig())
    info = assign_run_offsets(run, 0, 5)
    assert data == bytes(run.data)
    assert (source[0].offset, source[-1].offset, len(source)) == (
        info.first_offset,
        info.last_offset,
        info.record_count,
    )
    assert max(entry.max_timestamp for entry in stored(data)) == info.max_timestamp_ms


def test_follower_wrapper_with_overlapping_offsets_is_refused() -> None:
    """Its own offset rises, but a message inside has the offset of an earlier one."""
    first = encode_message(Message(5, 1, 0, NOW_MS, b"k", b"v"))
    inside = encode_messages([Message(0, 1, 0, NOW_MS), Message(1, 1, 0, NOW_MS)])
    assert 3 == validate_as_follower(first + wrapper(inside, offset=7), LogConfig()).record_count
    with pytest.raises(
        OffsetsOutOfOrderError, match="begins at offset 5, the one before"
    ) as caught:
        validate_as_follower(first + wrapper(inside, offset=6), LogConfig())
    assert len(first) == caught.value.position
    run = validate_as_follower(wrapper(inside, offset=7), LogConfig())
    with pytest.raises(OffsetsOutOfOrderError, match="begins at offset 6, and the log already"):
        assign_run_offsets(run, 7, 0)


@pytest.mark.parametrize("case", vectors("conversions")["cases"], ids=lambda case: case["name"])
def test_kafkas_conversions_agree_with_a_leader_of_that_format(
    case: dict[str, Any],
) -> None:
    """Records as in Kafka's down-conversion; unsupported fields are refused, not dropped."""
    data, magic = bytes.fromhex(case["in"]), case["to_magic"]
    settings = config(magic, message_timestamp_after_max_ms=2**63 - 1)
    headers = [parse_header(data, at) for at in positions(data)]
    is_lossy = case["error"] is not None or any(
        each.is_control or each.producer_id >= 0 for each in headers
    )
    is_lossy |= any(record["headers"] for each in case["in_batches"] for record in each["records"])
    has_holes = any(each.record_count not in (-1, each.last_offset_delta + 1) for each in headers)
    if is_lossy or has_holes or len({each.magic for each in headers}) > 1:
        with pytest.raises(InvalidRecordError):
            validate_as_leader(data, settings, NOW_MS)
        return
    run = validate_as_leader(data, settings, NOW_MS)
    result = [record for entry in stored(bytes(run.data)) for record in entry.records]
    converted = [record for entry in stored(bytes.fromhex(case["out"])) for record in entry.records]
    # Records below the requested offset of the fetch are left out there.
    first = len(result) - len(converted)
    assert [(record.key, record.value) for record in converted] == [
        (record.key, record.value) for record in result[first:]
    ]
    if magic == 0 or converted[0].timestamp_type == 0:
        assert [record.timestamp for record in converted] == [
            record.timestamp if magic else -1 for record in result[first:]
        ]


# -- stored bytes and answers ------------------------------------------------------------------


@st.composite
def producer_sets(draw: st.DrawFn) -> bytes:
    """Sets as producers send them: plain or wrapped, counted from 0 or otherwise."""
    magic = draw(st.sampled_from([0, 1]))
    fields = st.none() | st.binary(max_size=20)
    times = st.just(-1) | st.integers(NOW_MS - 100, NOW_MS + 100)
    drawn = [
        Message(
            number, magic, 0, draw(times) if magic else -1, draw(fields), LONG + draw(st.binary())
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    codec = draw(st.sampled_from([codecs.NONE, codecs.GZIP, codecs.LZ4]))
    if draw(st.integers(0, 3)) == 0:
        drawn = [replace(each, offset=each.offset * 2 + 1) for each in drawn]
    return encode_set(drawn, codec=codec)


@settings(max_examples=250)
@given(
    data=producer_sets(),
    magic=st.sampled_from([0, 1, 2]),
    codec=st.sampled_from([None, codecs.NONE, codecs.GZIP, codecs.LZ4, codecs.ZSTD]),
    has_append_time=st.booleans(),
    end_offset=st.sampled_from([0, 1, 77, 2**40]),
)
def test_leader_stores_as_the_reference(
    data: bytes, magic: int, codec: int | None, has_append_time: bool, end_offset: int
) -> None:
    """Format, codec, offsets and times of every entry, and the answer; plain ones to the byte."""
    if magic < 2 and codec == codecs.ZSTD:
        codec = codecs.GZIP
    kind = "LogAppendTime" if has_append_time else "CreateTime"
    log = LeaderLog(magic, codec, NOW_MS if has_append_time else None, end_offset)
    run = validate_as_leader(data, config(magic, codec, message_timestamp_type=kind), NOW_MS)
    info = assign_run_offsets(run, end_offset, 0)
    entries, answer = expected(data, log)
    assert entries == stored(bytes(run.data))
    assert (answer.max_timestamp, answer.shallow_offset) == (
        info.max_timestamp_ms,
        info.shallow_offset_of_max_timestamp,
    )
    count = sum(len(entry.records) for entry in entries)
    source_magic = data[16]
    assert (end_offset, end_offset + count - 1, count, len(entries), len(run.data)) == (
        info.first_offset,
        info.last_offset,
        info.record_count,
        info.batch_count,
        info.size_bytes,
    )
    assert count * (source_magic != magic) == info.rewriting.converted_record_count
    assert log.append_time == info.log_append_time_ms
    if magic < 2 and entries[0].codec == codecs.NONE:
        bit = 8 if magic and has_append_time else 0
        assert bytes(run.data) == encode_messages(
            Message(record.offset, magic, bit, record.timestamp, record.key, record.value)
            for entry in entries
            for record in entry.records
        )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("source", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_v2_batches_become_old_messages(
    source: Codec, codec: int | None, magic: int, kind: str
) -> None:
    """As in a broker that keeps an old format for new producers."""
    times = tuple(NOW_MS - number for number in range(40))
    data = batch(BatchSpec(source, times, tuple(b"%d" % number for number in range(40))))
    log_config = config(magic, codec, message_timestamp_type=kind)
    run = validate_as_leader(data, log_config, NOW_MS, AppendOrigin.CLIENT)
    info = assign_run_offsets(run, 300, 9)
    entries = stored(bytes(run.data))
    target = source if codec is None else codec
    assert {(magic, target)} == {(entry.magic, entry.codec) for entry in entries}
    records = [record for entry in entries for record in entry.records]
    timestamps = [NOW_MS] * 40 if kind == "LogAppendTime" else list(times)
    assert [
        (300 + number, timestamps[number] if magic else -1, b"%d" % number, b"value of the record")
        for number in range(40)
    ] == [(record.offset, record.timestamp, record.key, record.value) for record in records]
    recompressed = 1 if source or target else 0
    assert Rewriting(source, target, recompressed, 40) == info.rewriting
    assert NOW_MS if magic else -1 == info.max_timestamp_ms


def test_wrapper_of_the_logs_format_is_not_recompressed() -> None:
    """Only outer fields are set; its codec's level and its inner bytes are the producer's."""
    data = encode_set(messages(1), codec=codecs.LZ4)
    run = validate_as_leader(data, config(1), NOW_MS)
    assign_run_offsets(run, 50, 0)
    assert data[8:] == bytes(run.data[8:])
    assert 52 == parse_header(run.data).base_offset
    with_append_time = config(1, message_timestamp_type="LogAppendTime")
    run = validate_as_leader(data, with_append_time, NOW_MS + 9)
    header = parse_header(run.data)
    assert (1, NOW_MS + 9) == (header.timestamp_type, header.max_timestamp)
    assert data[26:] == bytes(run.data[26:])


def test_wrapper_with_a_wrong_timestamp_gets_that_of_its_messages() -> None:
    """As for v2: the producer's largest timestamp is recomputed."""
    inside = encode_messages(messages(1))
    run = validate_as_leader(wrapper(inside, offset=2, timestamp=5), config(1), NOW_MS)
    assert NOW_MS + 2 == parse_header(run.data).max_timestamp
    assert (0, NOW_MS + 2) == (scan_batches(run.data).status, run.batches[0].max_timestamp)


@pytest.mark.parametrize("magic", [0, 1])
def test_offsets_inside_a_producers_wrapper_are_ignored(magic: int) -> None:
    """All zero, falling or with gaps: the records get the log's next ones, in their order."""
    for offsets in ([0, 0, 0], [2, 1, 0], [5, 6, 9]):
        given_offsets = zip(messages(magic), offsets, strict=True)
        inside = encode_messages(replace(each, offset=offset) for each, offset in given_offsets)
        for target, outer in product((0, 1, 2), (0, 2, 9)):
            sent = wrapper(inside, magic=magic, offset=outer)
            run = validate_as_leader(sent, config(target), NOW_MS)
            assign_run_offsets(run, 20, 0)
            (entry,) = stored(bytes(run.data))
            assert [(20, b"key0"), (21, b"key1"), (22, b"key2")] == [
                (record.offset, record.key) for record in entry.records
            ]


@pytest.mark.parametrize(("outer", "rewritten"), [(0, 0), (2, 0), (1, 1), (7, 1)])
def test_wrapper_stays_only_at_the_offsets_that_producers_give_it(
    outer: int, rewritten: int
) -> None:
    """As in Kafka: 0, or the number of its last message; then its messages count from there."""
    run = validate_as_leader(wrapper(encode_messages(messages(1)), offset=outer), config(1), NOW_MS)
    assert Rewriting(1, 1, rewritten) == run.rewriting


def test_wrapper_kept_without_timestamps_has_a_shallow_offset() -> None:
    """Kafka's answer, as for v2; rewritten it has none."""
    timeless = [replace(each, timestamp=-1) for each in messages(1)]
    data = encode_set(timeless, codec=codecs.GZIP)
    for target, shallow in ((1, 42), (0, -1), (2, -1)):
        info = assign_run_offsets(validate_as_leader(data, config(target), NOW_MS), 40, 0)
        assert (-1, shallow) == (info.max_timestamp_ms, info.shallow_offset_of_max_timestamp)


def test_wrapper_with_a_claimed_time_gets_the_largest_of_its_messages() -> None:
    """They have their own times again, if the type is CreateTime; v1 in place, v2 rewritten."""
    inside = encode_messages(messages(1))
    data = wrapper(inside, offset=2, attributes=codecs.GZIP | 8, timestamp=NOW_MS + 50)
    for target in (1, 2):
        run = validate_as_leader(data, config(target), NOW_MS)
        (entry,) = stored(bytes(run.data))
        assert NOW_MS + 2 == entry.max_timestamp
        assert [NOW_MS, NOW_MS + 1, NOW_MS + 2] == [record.timestamp for record in entry.records]


def test_plain_message_with_a_timestamp_below_minus_1_counts_as_none() -> None:
    """As Kafka, which counts the largest from -1 on."""
    data = encode_messages(replace(each, timestamp=-7) for each in messages(1))
    run = validate_as_leader(data, config(1), NOW_MS)
    assert bytes(run.data) == encode_messages(replace(each, timestamp=-1) for each in messages(1))


def test_wrapper_of_v0_is_written_for_its_offset() -> None:
    """Its messages have absolute offsets, under the compression; a second try moves them again."""
    run = validate_as_leader(encode_set(messages(0), codec=codecs.GZIP), config(0), NOW_MS)
    for offset in (7, 2**33, 0):
        info = assign_run_offsets(run, offset, 0)
        (entry,) = stored(bytes(run.data))
        assert [offset, offset + 1, offset + 2] == [record.offset for record in entry.records]
        assert (offset, offset + 2) == (info.first_offset, info.last_offset)


def test_wrapper_of_v0_in_lz4_has_the_faulty_header() -> None:
    """The checksum of the frame's header covers the frame's magic; in v1 it is correct."""
    for magic, checksum in ((0, 0x1A), (1, 0x82)):
        run = validate_as_leader(encode_messages(messages(magic)), config(magic, 3), NOW_MS)
        assign_run_offsets(run, 3, 0)
        start = bytes(run.data).index(b"\x04\x22\x4d\x18")
        assert b"\x60\x40" == bytes(run.data[start + 4 : start + 6])
        assert checksum == run.data[start + 6]


def test_plain_messages_that_compressing_would_grow_stay_plain() -> None:
    """A wrapper takes 34 bytes and the overhead of the codec."""
    tiny = encode_message(Message(0, 1, 0, NOW_MS, None, b"v"))
    run = validate_as_leader(tiny, config(1, 1), NOW_MS)
    assert (tiny, Rewriting(0, 0)) == (bytes(run.data), run.rewriting)


@pytest.mark.parametrize("magic", [0, 1])
def test_plain_messages_become_one_batch_of_a_client_or_several_of_the_program(
    magic: int,
) -> None:
    """A broker merges all of them; an embedding program may append more than one batch holds."""
    data = encode_messages(messages(magic, 50))
    limits = config(2, batch_bytes=2000)
    one = validate_as_leader(data, limits, NOW_MS, AppendOrigin.CLIENT)
    several = validate_as_leader(data, limits, NOW_MS, AppendOrigin.EMBEDDED)
    assert 1 == len(one.batches)
    assert 10 < len(several.batches) < 20
    assert all(facts.size_bytes <= 2000 for facts in several.batches)
    assign_run_offsets(several, 10, 0)
    result = scan_batches(several.data, next_offset=10)
    assert (len(several.batches), 60, 0) == (result.count, result.next_offset, result.status)


def test_embedding_program_may_mix_plain_messages_and_wrappers() -> None:
    """Each keeps its own codec under `producer`; the order is that of the bytes."""
    for magic in (0, 1):
        parts = [
            encode_messages(messages(magic, 2)),
            encode_set(messages(magic, 4), codec=codecs.LZ4),
            encode_messages(messages(magic, 1)),
            encode_set(messages(magic, 3), codec=codecs.GZIP),
        ]
        for target, codings in ((0, [0, 0, 3, 0, 1]), (1, [0, 0, 3, 0, 1]), (2, [0, 3, 0, 1])):
            run = validate_as_leader(b"".join(parts), config(target), NOW_MS)
            info = assign_run_offsets(run, 5, 0)
            entries = stored(bytes(run.data))
            assert codings == [entry.codec for entry in entries]
            offsets = [record.offset for entry in entries for record in entry.records]
            assert list(range(5, 15)) == offsets
            assert (10, 14) == (info.record_count, info.last_offset)
        with pytest.raises(InvalidRecordError, match="a second batch"):
            validate_as_leader(parts[1] + parts[2], config(magic), NOW_MS, AppendOrigin.CLIENT)
        plain = validate_as_leader(parts[0], config(magic), NOW_MS, AppendOrigin.CLIENT)
        assert 2 == len(plain.batches)
