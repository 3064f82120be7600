"""Tests of encoded batches: differences from Kafka's leader are listed here with a reason."""

from __future__ import annotations

import pickle
import random
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core import crc32c
from kafkalog._core.batch import scan_batches
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.header import BatchHeader, parse_header
from kafkalog._core.record import decode_records
from kafkalog._engine.append_info import assign_run_offsets
from kafkalog.config import LogConfig
from kafkalog.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaLogError,
    OffsetsOutOfOrderError,
    RecordTooLargeError,
    RecordValidationError,
    UnexpectedAppendOffsetError,
    UnsupportedCodecError,
)
from kafkalog.model import AppendOrigin, RecordError
from kafkalog.records.codecs import Codec, compress
from tests.support.encoded_batches import (
    NOW_MS,
    BatchSpec,
    batch,
    edited,
    validate_as_follower,
    validate_as_leader,
)
from tests.support.golden import CLEAN, Manifest, data_directory, vectors

CONFIG = LogConfig()

# Accepted here, refused by Kafka's leader.
LAXER = {
    "base_offset_over_segment": "offsets are given anew",
    "two_batches": "one produce request is one batch, one append may be many",
    "two_batches_same_offsets": "offsets are given anew",
    "two_batches_gap": "offsets are given anew",
}
# Refused here, accepted by Kafka's leader.
STRICTER = {
    "length_too_large": "what is left over of the bytes is no batch",
    "only_11_bytes": "what is left over of the bytes is no batch",
    "only_12_bytes": "what is left over of the bytes is no batch",
    "only_16_bytes": "what is left over of the bytes is no batch",
    "only_17_bytes": "what is left over of the bytes is no batch",
    "only_60_bytes": "what is left over of the bytes is no batch",
    "good_then_junk": "what is left over of the bytes is no batch",
    "offset_delta_negative": "readers would see wrong offsets",
    "offset_deltas_fall": "readers would see wrong offsets",
    "offset_deltas_repeat": "readers would see wrong offsets",
    "zstd_record_length_1GiB": "no reader could read it",
    "transactional_no_producer": "a transaction of nobody",
}


def v2_cases() -> list[Any]:
    """The hostile vectors of format v2."""
    cases = vectors("invalid")["cases"]
    return [
        pytest.param(case, id=case["name"])
        for case in cases
        if not case["name"].startswith(("v0", "v1"))
    ]


def timestamps_of(data: bytes, header: BatchHeader) -> list[int]:
    """Timestamps of the records of an uncompressed batch."""
    records = decode_records(data, header, header.position + 61, header.end_position)
    return [record.timestamp_ms for record in records]


# -- Kafka's verdicts --------------------------------------------------------------------------


@pytest.mark.parametrize("origin", [AppendOrigin.EMBEDDED, AppendOrigin.CLIENT])
@pytest.mark.parametrize("case", v2_cases())
def test_client_batches_verdict_equals_kafkas_leader(
    case: dict[str, Any], origin: AppendOrigin
) -> None:
    """Every hostile vector, but for the differences listed above; no client gets a laxer check."""
    refused = case["leader_append"]["error"] is not None
    if case["name"] in LAXER and origin is AppendOrigin.EMBEDDED:
        assert refused
        refused = False
    elif case["name"] in STRICTER:
        assert not refused
        refused = True
    data = bytes.fromhex(case["hex"])
    if not refused:
        run = validate_as_leader(data, CONFIG, NOW_MS, origin)
        assign_run_offsets(run, 1000, 3)
        assert (len(data), 0) == (scan_batches(run.data)[1], scan_batches(run.data).status)
        return
    with pytest.raises(KafkaLogError):
        validate_as_leader(data, CONFIG, NOW_MS, origin)


@pytest.mark.parametrize("case", v2_cases())
def test_own_offsets_damage_found_by_kafkas_check_is_refused(case: dict[str, Any]) -> None:
    """Damage that a follower finds by size or checksum is refused here."""
    if case["follower_append"]["error"] is None:
        return
    data = bytes.fromhex(case["hex"])
    if case["name"] == "leader_epoch_minus_1":
        # Without epoch, which Kafka's replication never sends, and a stored log may have.
        assert validate_as_follower(data, CONFIG).batches
        return
    with pytest.raises(KafkaLogError):
        validate_as_follower(data, CONFIG)


# -- corrections ----------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", list(Codec))
def test_client_batches_get_consecutive_offsets_and_keep_their_records(codec: Codec) -> None:
    """A run of batches moves to the log end; its payload is unchanged."""
    one, two = batch(BatchSpec(codec), base_offset=50), batch(BatchSpec(codec, (7,), (b"k",)))
    run = validate_as_leader(one + two, CONFIG.replace(), NOW_MS)
    info = assign_run_offsets(run, 900, 4)
    assert (900, 903, 4, 2) == (
        info.first_offset,
        info.last_offset,
        info.record_count,
        info.batch_count,
    )
    assert (len(one + two), None, NOW_MS + 5) == (
        info.size_bytes,
        info.log_append_time_ms,
        info.max_timestamp_ms,
    )
    first = parse_header(run.data)
    second = parse_header(run.data, first.end_position)
    assert [(900, 902, 4), (903, 903, 4)] == [
        (each.base_offset, each.last_offset, each.partition_leader_epoch)
        for each in (first, second)
    ]
    assert one[61:] == run.data[61 : len(one)]
    assert (2, 904) == (scan_batches(run.data).count, scan_batches(run.data).next_offset)


def test_client_batches_assigned_twice_move_their_metadata() -> None:
    """A run whose append failed may be appended later, at another log end."""
    run = validate_as_leader(batch() + batch(), CONFIG, NOW_MS)
    assign_run_offsets(run, 10, 0)
    info = assign_run_offsets(run, 20, 0)
    assert (20, 25) == (info.first_offset, info.last_offset)
    assert [20, 23] == [facts.base_offset for facts in run.batches]


def test_client_batches_do_not_change_or_keep_the_callers_buffer() -> None:
    """A private copy, whatever happens to the original."""
    data = bytearray(edited(batch(), 35, ">q", 5))
    before = bytes(data)
    run = validate_as_leader(data, CONFIG, NOW_MS)
    assign_run_offsets(run, 77, 1)
    assert before == bytes(data)
    data[:] = bytes(len(data))
    assert 77 == parse_header(run.data).base_offset


@pytest.mark.parametrize("claimed", [5, NOW_MS + 4, 2**60])
def test_client_batches_wrong_max_timestamp_is_recomputed(claimed: int) -> None:
    """The header's largest timestamp is that of its records; the CRC is recomputed."""
    run = validate_as_leader(edited(batch(), 35, ">q", claimed), CONFIG, NOW_MS)
    assert NOW_MS + 5 == parse_header(run.data).max_timestamp
    assert (1, 0) == (scan_batches(run.data).count, scan_batches(run.data).status)
    assert NOW_MS + 5 == run.batches[0].max_timestamp


def test_client_batches_right_max_timestamp_is_not_changed() -> None:
    """A valid batch is not rewritten, unused attribute bits included."""
    data = edited(batch(), 21, ">h", 0x40)
    assert data == bytes(validate_as_leader(data, CONFIG, NOW_MS).data)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_client_batches_log_append_time_is_assigned(codec: Codec) -> None:
    """Every record reads as the time of the append, whatever its timestamp was."""
    config = LogConfig(message_timestamp_type="LogAppendTime")
    data = batch(BatchSpec(codec, timestamps=(-1, 3, 2**61)))
    run = validate_as_leader(data, config, NOW_MS)
    header = parse_header(run.data)
    assert (1, NOW_MS, 0) == (
        header.timestamp_type,
        header.max_timestamp,
        scan_batches(run.data).status,
    )
    info = assign_run_offsets(run, 0, 0)
    assert (NOW_MS, NOW_MS) == (info.log_append_time_ms, info.max_timestamp_ms)
    if codec is Codec.NONE:
        assert [NOW_MS] * 3 == timestamps_of(bytes(run.data), header)


def test_client_batches_claimed_append_time_becomes_create_time() -> None:
    """As in Kafka the bit is cleared; here the largest timestamp is then that of the records."""
    data = batch(timestamp_type=1, max_timestamp=NOW_MS - 1)
    run = validate_as_leader(data, CONFIG, NOW_MS)
    header = parse_header(run.data)
    assert (0, NOW_MS + 5) == (header.timestamp_type, header.max_timestamp)
    assert [NOW_MS, NOW_MS + 5, NOW_MS + 2] == timestamps_of(bytes(run.data), header)


@pytest.mark.parametrize("base", [-1, -9])
def test_client_batches_without_timestamps_have_max_timestamp_minus_1(base: int) -> None:
    """-1 is none; lower values are kept, but no header is below -1."""
    spread = (0, 0, 0) if base == -1 else (0, 4, 2)
    data = edited(batch(BatchSpec(timestamps=spread)), 27, ">q", base)
    run = validate_as_leader(data, CONFIG, NOW_MS)
    header = parse_header(run.data)
    assert -1 == header.max_timestamp
    assert [base + each for each in spread] == timestamps_of(bytes(run.data), header)


def test_client_batches_of_no_batch_are_an_empty_run() -> None:
    """Like an append of no records."""
    for run in (validate_as_leader(b"", CONFIG, NOW_MS), validate_as_follower(b"", CONFIG)):
        info = assign_run_offsets(run, 5, 0)
        assert (5, 4, 0, 0) == (
            info.first_offset,
            info.last_offset,
            info.record_count,
            info.size_bytes,
        )


# -- rules -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (edited(batch(), 57, ">i", 0), "0 records, but offsets for 3"),
        (edited(batch(), 57, ">i", 2), "2 records, but offsets for 3"),
        (edited(batch(), 23, ">i", 5), "3 records, but offsets for 6"),
        (batch(control=True), "only the log itself writes control batches"),
        (edited(batch(), 21, ">h", 0x10), "a transaction, and names no producer"),
        (edited(batch(), 43, ">q", 4), "producer 4 without a sequence number"),
        (edited(batch() + b"\x00", 8, ">i", len(batch()) - 11), "bytes are left after the last"),
        (edited(batch(), 61, ">b", 0), "record's length"),
        (edited(batch(BatchSpec(Codec.GZIP)), 61, ">b", 0), "gzip data: "),
    ],
)
def test_client_batches_broken_rule_is_refused(data: bytes, why: str) -> None:
    """Whole batches with fields that a producer must not set; the error has the position."""
    good = batch()
    with pytest.raises(InvalidRecordError, match=why) as caught:
        validate_as_leader(good + data, CONFIG, NOW_MS)
    assert len(good) == caught.value.position
    assert f"the batch at position {len(good)}: " in str(caught.value)


def test_client_batches_unknown_codec_is_refused() -> None:
    """With a valid CRC, so that the codec bits are those of the writer."""
    for codec in (5, 6, 7):
        with pytest.raises(
            UnsupportedCodecError, match=f"position 0: codec must be .*, got {codec}"
        ):
            validate_as_leader(edited(batch(), 21, ">h", codec), CONFIG, NOW_MS)


def test_client_batches_damage_is_corrupt_not_invalid() -> None:
    """A flipped bit, a truncated batch, leftovers: the bytes were damaged in transit."""
    good, following = batch(), batch(base_offset=3)
    flipped = bytearray(following)
    flipped[-1] ^= 1
    for damaged in (bytes(flipped), following[:-1], b"x" * 5, bytes(100)):
        with pytest.raises(CorruptRecordError) as caught:
            validate_as_leader(good + damaged, CONFIG, NOW_MS)
        assert len(good) == caught.value.position
        with pytest.raises(CorruptRecordError) as caught:
            validate_as_follower(good + damaged, CONFIG)
        assert len(good) == caught.value.position


def test_client_batches_size_limits_hold_to_the_byte() -> None:
    """`max.message.bytes` and `segment.bytes` count the whole batch, after compression."""
    data = batch()
    for key, name in (
        ("max.message.bytes", "max_message_bytes"),
        ("segment.bytes", "segment_bytes"),
    ):
        exact = LogConfig().replace(**{name: len(data)})
        assert 1 == len(validate_as_leader(data, exact, NOW_MS).batches)
        tight = LogConfig().replace(**{name: len(data) - 1})
        with pytest.raises(RecordTooLargeError, match=rf"most {len(data) - 1} bytes \({key}\)"):
            validate_as_leader(data, tight, NOW_MS)


def test_client_batches_decompression_limit_applies() -> None:
    """A bomb is refused by its decompressed size."""
    builder = BatchBuilder()
    builder.append(b"key", bytes(100_000), NOW_MS)
    payload = compress(Codec.ZSTD, builder.payload())
    data = bytes(builder.finish(codec=int(Codec.ZSTD), payload=payload))
    assert validate_as_leader(data, CONFIG, NOW_MS).batches
    config = LogConfig(decompressed_max_bytes=100_000)
    with pytest.raises(InvalidRecordError, match="more than 100000 bytes"):
        validate_as_leader(data, config, NOW_MS)


@pytest.mark.parametrize(
    ("timestamp_ms", "is_allowed"),
    [
        (NOW_MS - 100, True),
        (NOW_MS - 101, False),
        (NOW_MS + 50, True),
        (NOW_MS + 51, False),
        (-1, True),
        (0, False),
        (2**62, False),
    ],
)
def test_client_batches_timestamp_bounds_are_inclusive(
    timestamp_ms: int, *, is_allowed: bool
) -> None:
    """Any record of the batch counts; -1 always passes; LogAppendTime has no bounds."""
    limits = {"message_timestamp_before_max_ms": 100, "message_timestamp_after_max_ms": 50}
    data = batch(BatchSpec(timestamps=(NOW_MS, timestamp_ms, NOW_MS)))
    config = LogConfig().replace(**limits)
    if is_allowed:
        assert validate_as_leader(data, config, NOW_MS).batches
    else:
        expected = rf"record 1: its timestamp {timestamp_ms} is .*\.max\.ms"
        with pytest.raises(InvalidTimestampError, match=expected) as caught:
            validate_as_leader(data, config, NOW_MS)
        assert [1] == [each.index for each in caught.value.record_errors]
        assert 32 == caught.value.kafka_code
    with_append_time = config.replace(message_timestamp_type="LogAppendTime")
    assert validate_as_leader(data, with_append_time, NOW_MS).batches


def test_client_batches_claimed_append_time_is_refused_under_append_time() -> None:
    """As in Kafka's leader."""
    config = LogConfig(message_timestamp_type="LogAppendTime")
    claiming = batch(timestamp_type=1, max_timestamp=NOW_MS)
    with pytest.raises(InvalidTimestampError, match="claims an append time, which only") as caught:
        validate_as_leader(claiming, config, NOW_MS)
    assert [0, 1, 2] == [each.index for each in caught.value.record_errors]


@pytest.mark.parametrize(("claimed", "why"), [(-1, "has none"), (NOW_MS + 10**9, "out of bounds")])
def test_client_batches_claimed_append_time_must_be_valid(claimed: int, why: str) -> None:
    """In a log with CreateTime the claim is dropped, but an invalid value is refused."""
    with pytest.raises(InvalidTimestampError, match=why):
        validate_as_leader(batch(timestamp_type=1, max_timestamp=claimed), CONFIG, NOW_MS)


def test_client_batches_key_is_required_in_a_compacted_log() -> None:
    """A null key could never be compacted; an empty one can."""
    config = LogConfig(cleanup_policy=("compact",))
    assert validate_as_leader(batch(BatchSpec(keys=(b"", b"b", b"c"))), config, NOW_MS).batches
    data = batch(BatchSpec(Codec.LZ4, keys=(b"a", None, None)))
    with pytest.raises(RecordValidationError, match="2 records are not allowed here") as caught:
        validate_as_leader(batch() + data, config, NOW_MS)
    fault = "it has no key, and cleanup.policy is compact"
    assert (RecordError(4, fault), RecordError(5, fault)) == caught.value.record_errors
    assert 87 == caught.value.kafka_code
    assert validate_as_leader(data, CONFIG, NOW_MS).batches


def test_record_errors_are_collected_and_three_are_named() -> None:
    """Each record by the first rule that it breaks; one bad timestamp decides the error's type."""
    config = LogConfig(cleanup_policy=("compact",), message_timestamp_before_max_ms=5)
    made = BatchSpec(keys=(None, b"b", None), timestamps=(NOW_MS - 9, NOW_MS - 6, NOW_MS))
    with pytest.raises(InvalidTimestampError) as caught:
        validate_as_leader(batch(made) + batch(made), config, NOW_MS)
    error = pickle.loads(pickle.dumps(caught.value))
    assert caught.value.record_errors == error.record_errors
    assert [0, 1, 2, 3, 4, 5] == [each.index for each in error.record_errors]
    assert ["it has no key", (f"its timestamp {NOW_MS - 6} is 6 ms before the time of the append"
            f" ({NOW_MS})"), "it has no key"] == [
        each.message.split(", and ")[0] for each in error.record_errors[:3]
    ]  # fmt: skip
    assert "record 2: " in str(error)
    assert "record 3: " not in str(error)
    assert str(error).endswith("; and 3 more")


def test_record_errors_of_a_hostile_append_are_bounded() -> None:
    """All are counted, a thousand are listed."""
    builder = BatchBuilder()
    builder.extend_lists(None, [b""] * 5000, NOW_MS)
    config = LogConfig(cleanup_policy=("compact",))
    with pytest.raises(RecordValidationError, match=r"^5000 records are") as caught:
        validate_as_leader(builder.finish(), config, NOW_MS)
    assert 1000 == len(caught.value.record_errors)


# -- own offsets -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "partition", ["plain-0", "mixed-codec-0", "transactions-0", "compact-txn-0", "epochs-0"]
)
def test_own_offsets_segments_of_a_broker_are_accepted_unchanged(partition: str) -> None:
    """Control batches, transactions, gaps, emptied batches, any codec: not one byte changes."""
    folder = data_directory(CLEAN) / partition
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    facts = list(Manifest(CLEAN, partition).batches())
    run = validate_as_follower(data, CONFIG)
    info = assign_run_offsets(run, facts[0].base_offset, 99)
    assert data == bytes(run.data)
    assert [(each.base_offset, each.last_offset, each.batch_size) for each in facts] == [
        (each.base_offset, each.last_offset, each.size_bytes) for each in run.batches
    ]
    assert (facts[0].base_offset, facts[-1].last_offset) == (info.first_offset, info.last_offset)
    assert max(each.max_timestamp for each in facts) == info.max_timestamp_ms


def test_own_offsets_gap_to_the_log_end_is_allowed_and_overlap_is_not() -> None:
    """A follower may skip offsets that were compacted away, never repeat one."""
    run = validate_as_follower(batch(base_offset=10), CONFIG)
    assert 10 == assign_run_offsets(run, 10, 0).first_offset
    assert 10 == assign_run_offsets(run, 3, 0).first_offset
    with pytest.raises(
        UnexpectedAppendOffsetError, match="begins at offset 10, and the log already"
    ):
        assign_run_offsets(run, 11, 0)


@pytest.mark.parametrize("second", [0, 1, 2])
def test_own_offsets_not_rising_are_refused(second: int) -> None:
    """The second batch begins inside the first."""
    data = batch(base_offset=0)
    with pytest.raises(OffsetsOutOfOrderError, match="the one before it ends at 2") as caught:
        validate_as_follower(data + batch(base_offset=second), CONFIG)
    assert (len(data), second) == (caught.value.position, caught.value.base_offset)
    assert 2 == len(validate_as_follower(data + batch(base_offset=3), CONFIG).batches)


def test_own_offsets_batch_over_a_segment_is_refused() -> None:
    """`max.message.bytes` does not apply to a follower, a segment's size does."""
    data = batch()
    config = LogConfig(max_message_bytes=1, segment_bytes=len(data))
    assert 1 == len(validate_as_follower(data, config).batches)
    with pytest.raises(RecordTooLargeError, match=r"\(segment\.bytes\), got"):
        validate_as_follower(data, config.replace(segment_bytes=len(data) - 1))


# -- hostile -----------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    codec=st.sampled_from(list(Codec)),
    edits=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    fix=st.booleans(),
)
def test_edited_batches_are_accepted_whole_or_refused(
    codec: Codec, edits: list[tuple[int, int]], *, fix: bool
) -> None:
    """Any bytes overwritten, with a valid CRC or not: an accepted batch is readable."""
    data = bytearray(batch(BatchSpec(codec)) * 2)
    for position, value in edits:
        data[position % len(data)] = value
    if fix:
        struct.pack_into(">I", data, 17, crc32c.value(data[21 : len(data) // 2]))
    try:
        run = validate_as_leader(data, CONFIG, NOW_MS)
    except KafkaLogError:
        return
    assign_run_offsets(run, 5, 0)
    result = scan_batches(run.data, next_offset=5)
    assert (0, len(data)) == (result.status, result.position)


@settings(max_examples=100)
@given(data=st.binary(max_size=300))
def test_random_bytes_are_refused_with_typed_errors(data: bytes) -> None:
    """All errors are kafkalog's own."""
    for start in (b"", batch()[: random.Random(len(data)).randrange(70)]):
        if not start + data:
            continue
        with pytest.raises(KafkaLogError):
            validate_as_leader(start + data, CONFIG, NOW_MS)
        with pytest.raises(KafkaLogError):
            validate_as_follower(start + data, CONFIG)
