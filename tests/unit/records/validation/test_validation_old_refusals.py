"""Tests of refusals of old messages, and of v2 batches for a log of an old format."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.builder import BatchBuilder
from kafkalog._core.header import parse_header
from kafkalog._engine.append_info import assign_run_offsets
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaLogError,
    RecordTooLargeError,
    RecordValidationError,
    UnsupportedCodecError,
    UnsupportedForMessageFormatError,
)
from kafkalog.model import AppendOrigin
from kafkalog.records.codecs import Codec, compress
from tests.support import reference_codecs as codecs
from tests.support.encoded_batches import (
    NOW_MS,
    BatchSpec,
    batch,
    edited,
    validate_as_leader,
)
from tests.support.old_appends import config, messages, positions, wrapper
from tests.support.reference_leader import stored
from tests.support.reference_messages import Message, encode_message, encode_messages, encode_set


def test_formats_do_not_mix_in_one_append() -> None:
    """In any order and for any format of the log."""
    old = [encode_messages(messages(magic)) for magic in (0, 1)]
    for target in (0, 1, 2):
        for first, second in ((old[0], old[1]), (old[1], batch()), (batch(), old[0])):
            with pytest.raises(InvalidRecordError, match="one append has one format") as caught:
                validate_as_leader(first + second, config(target), NOW_MS)
            assert len(first) == caught.value.position


@pytest.mark.parametrize("magic", [0, 1])
def test_fields_unsupported_by_an_old_format_are_refused(magic: int) -> None:
    """Producers, transactions, control records, headers: never dropped silently."""
    builder = BatchBuilder()
    builder.append(b"k", b"v", NOW_MS, [("name", b"text")])
    producer: dict[str, Any] = {"producer_id": 4, "producer_epoch": 0, "base_sequence": 0}
    marker = BatchBuilder()
    marker.append(bytes([0, 0, 0, 1]), bytes(6), NOW_MS)
    control = bytes(marker.finish(control=True, transactional=True, **producer))
    transaction = batch(transactional=True, **producer)
    client, coordinator = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR
    for data, origin, what in (
        (bytes(builder.finish()), client, "headers"),
        (batch(**producer), client, "producer ids"),
        (transaction, coordinator, "transactions"),
        (control, coordinator, "control records"),
    ):
        with pytest.raises(UnsupportedForMessageFormatError, match=what) as caught:
            validate_as_leader(data, config(magic), NOW_MS, origin)
        assert (43, 0) == (caught.value.kafka_code, caught.value.position)
    with pytest.raises(UnsupportedCodecError, match="zstd"):
        validate_as_leader(batch(BatchSpec(Codec.ZSTD)), config(magic), NOW_MS)
    assert validate_as_leader(batch(BatchSpec(Codec.ZSTD)), config(magic, 1), NOW_MS).batches


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_null_keys_of_a_compacted_log_are_listed(magic: int, codec: int) -> None:
    """By their number in the append; an empty key is not null."""
    drawn = messages(magic, 5)
    drawn[1] = replace(drawn[1], key=None)
    drawn[3] = replace(drawn[3], key=b"")
    drawn[4] = replace(drawn[4], key=None)
    for target in (0, 1, 2):
        with pytest.raises(RecordValidationError, match="it has no key") as caught:
            validate_as_leader(
                encode_set(drawn, codec=codec),
                config(target, cleanup_policy=("compact",)),
                NOW_MS,
            )
        assert [1, 4] == [each.index for each in caught.value.record_errors]


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_timestamps_out_of_bounds_are_listed(codec: int) -> None:
    """Of v1, whose messages have some; bounds are inclusive, -1 and v0 always pass."""
    limits = {"message_timestamp_before_max_ms": 10, "message_timestamp_after_max_ms": 20}
    times = [NOW_MS - 10, NOW_MS - 11, NOW_MS + 20, NOW_MS + 21, -1]
    drawn = [
        replace(each, timestamp=time) for each, time in zip(messages(1, 5), times, strict=True)
    ]
    for target in (0, 1, 2):
        with pytest.raises(InvalidTimestampError) as caught:
            validate_as_leader(encode_set(drawn, codec=codec), config(target, **limits), NOW_MS)
        assert [1, 3] == [each.index for each in caught.value.record_errors]
        good = encode_set([drawn[0], drawn[2], drawn[4]], codec=codec)
        assert validate_as_leader(good, config(target, **limits), NOW_MS).batches
        old = encode_set(messages(0), codec=codec)
        assert validate_as_leader(old, config(target, **limits), NOW_MS).batches


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.GZIP])
def test_claimed_append_time_is_accepted_as_in_kafka_with_timestamps(codec: int) -> None:
    """The bit is cleared if there is a timestamp; else, or under LogAppendTime, it is refused."""
    claiming = encode_set(messages(1), codec=codec, timestamp_type=1, append_time=NOW_MS)
    for target in (1, 2):
        run = validate_as_leader(claiming, config(target), NOW_MS)
        assert {0} == {parse_header(run.data, at).timestamp_type for at in positions(run.data)}
        with_append_time = config(target, message_timestamp_type="LogAppendTime")
        with pytest.raises(InvalidTimestampError, match="only the log may give") as caught:
            validate_as_leader(claiming, with_append_time, NOW_MS)
        assert [0, 1, 2] == [each.index for each in caught.value.record_errors]
        timeless = encode_set(
            messages(1, timestamp=-1)[:1], codec=codec, timestamp_type=1, append_time=-1
        )
        with pytest.raises(InvalidTimestampError, match="claims an append time"):
            validate_as_leader(timeless, config(target), NOW_MS)


def test_claims_among_plain_messages_are_errors_of_those_only() -> None:
    """Each plain message has its own type."""
    drawn = messages(1, 4)
    drawn[2] = replace(drawn[2], attributes=8)
    with_append_time = config(1, message_timestamp_type="LogAppendTime")
    with pytest.raises(InvalidTimestampError) as caught:
        validate_as_leader(encode_messages(drawn), with_append_time, NOW_MS)
    assert [2] == [each.index for each in caught.value.record_errors]
    run = validate_as_leader(encode_messages(drawn), config(1), NOW_MS)
    assert bytes(run.data) == encode_messages(messages(1, 4))


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_another_magic_in_a_wrapper_are_listed(magic: int) -> None:
    """Brokers of 0.10.0 wrote such sets, a leader refuses them."""
    inside = [messages(magic)[0], messages(1 - magic)[1], messages(magic)[2]]
    data = wrapper(encode_messages(inside), magic=magic, offset=2)
    for target in (0, 1, 2):
        with pytest.raises(RecordValidationError, match="another message format") as caught:
            validate_as_leader(data, config(target), NOW_MS)
        assert [1] == [each.index for each in caught.value.record_errors]
        assert not isinstance(caught.value, InvalidTimestampError)


@pytest.mark.parametrize("magic", [0, 1])
def test_damage_inside_a_wrapper_is_found(magic: int) -> None:
    """The CRC of a message inside is checked: only a leader can, before it assigns offsets."""
    inside = bytearray(encode_messages(messages(magic)))
    inside[-1] ^= 1
    good = encode_set(messages(magic), codec=codecs.GZIP)
    for target in (0, 1, 2):
        with pytest.raises(CorruptRecordError, match="CRC of a message inside") as caught:
            validate_as_leader(good + wrapper(bytes(inside), magic=magic), config(target), NOW_MS)
        assert len(good) == caught.value.position


def test_limits_apply_to_received_and_to_stored_entries() -> None:
    """In bytes of one entry, to the byte; a compressed entry is measured again."""
    data = encode_messages(messages(1))
    size = parse_header(data).size_bytes
    for name, key in (
        ("max_message_bytes", "max.message.bytes"),
        ("segment_bytes", "segment.bytes"),
    ):
        assert validate_as_leader(data, config(1, **{name: size}), NOW_MS).batches
        with pytest.raises(RecordTooLargeError, match=rf"most {size - 1} bytes \({key}\)"):
            validate_as_leader(data, config(1, **{name: size - 1}), NOW_MS)
    many = encode_set(messages(1, 40), codec=codecs.GZIP)
    with pytest.raises(RecordTooLargeError, match=r"most 2000 bytes \(max\.message\.bytes\)"):
        validate_as_leader(many, config(2, 0, max_message_bytes=2000), NOW_MS)
    # Plain messages are measured one by one.
    assert 40 == len(validate_as_leader(many, config(1, 0, max_message_bytes=2000), NOW_MS).batches)
    with pytest.raises(InvalidRecordError, match="more than 1000 bytes"):
        validate_as_leader(many, config(1, decompressed_max_bytes=1000), NOW_MS)


@pytest.mark.parametrize("magic", [0, 1])
@settings(max_examples=150)
@given(choice=st.data())
def test_hostile_bytes_are_refused_with_a_typed_error_or_stored_whole(
    magic: int, choice: st.DataObject
) -> None:
    """Truncated, flipped, spliced: never another exception, and accepted bytes are readable."""
    target = choice.draw(st.sampled_from([0, 1, 2]))
    codec = choice.draw(st.sampled_from([codecs.NONE, codecs.GZIP]))
    inside = bytearray(encode_messages(messages(magic)))
    data = bytearray(encode_set(messages(magic), codec=codec))
    victim = choice.draw(st.sampled_from([inside, data]))
    for _ in range(choice.draw(st.integers(1, 3))):
        place = choice.draw(st.integers(0, len(victim) - 1))
        victim[place] = choice.draw(st.integers(0, 255))
    del victim[choice.draw(st.integers(1, len(victim))) :]
    hostile = bytes(data) if victim is data else wrapper(bytes(inside), magic=magic, offset=2)
    try:
        run = validate_as_leader(hostile, config(target), NOW_MS)
    except KafkaLogError as error:
        assert error.position is not None or isinstance(
            error, RecordValidationError | RecordTooLargeError
        )
        return
    info = assign_run_offsets(run, 9, 0)
    records = [record for entry in stored(bytes(run.data)) for record in entry.records]
    assert list(range(9, 9 + info.record_count)) == [record.offset for record in records]


def test_unknown_codec_in_a_v2_batch_is_refused_by_an_old_log_too() -> None:
    """With a valid CRC."""
    with pytest.raises(UnsupportedCodecError, match="codec must be 0 to 4, got 6"):
        validate_as_leader(edited(batch(), 21, ">h", 6), config(1), NOW_MS)


def test_empty_append_to_an_old_log_is_an_empty_run() -> None:
    """A run of no batches."""
    info = assign_run_offsets(validate_as_leader(b"", config(0), NOW_MS), 5, 0)
    assert (5, 4, 0) == (info.first_offset, info.last_offset, info.size_bytes)
    with pytest.raises(CorruptRecordError):
        validate_as_leader(b"\0" * 11, config(0), NOW_MS)


def test_bomb_in_a_wrapper_is_refused_by_its_decompressed_size() -> None:
    """Before the memory is allocated."""
    inside = encode_message(Message(0, 1, 0, NOW_MS, b"k", bytes(100_000)))
    data = encode_message(Message(0, 1, 1, NOW_MS, None, compress(Codec.GZIP, inside)))
    with pytest.raises(InvalidRecordError, match="more than 50000 bytes"):
        validate_as_leader(data, config(2, decompressed_max_bytes=50_000), NOW_MS)
