"""Tests of the worked examples of Kafka's formats, read and written, and of bytes that a reader
must refuse or accept. Old formats are tested in `tests/support/test_reference_messages.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafkalog import Record, open_log
from kafkalog._core.batch import assign_offsets, check_batch, scan_batches, set_max_timestamp
from kafkalog._core.batch_metadata import BatchMetadata
from kafkalog._core.builder import BatchBuilder
from kafkalog._core.header import parse_header
from kafkalog._core.index import (
    OffsetIndexView,
    TimeIndexView,
    check_offset_index,
    check_time_index,
)
from kafkalog._core.status import STATUS_CODES, status_name
from kafkalog._engine.roll_planner import RollPlanner
from kafkalog.errors import CorruptRecordError, InvalidRecordError
from kafkalog.records.batch_view import BatchView
from kafkalog.records.codecs import Codec, decompress
from kafkalog.records.control import ControlType, decode_control
from tests.support import reference, reference_records
from tests.support import reference_codecs as slow_codecs
from tests.support.logs import manual_log
from tests.support.reference import Header
from tests.support.reference_records import Entry

T = 1_700_000_000_000
NONE16 = "ff" * 14

# Two records at leader epoch 7, headers h=x and n=null, the second with neither key nor value.
RECORDS = bytes.fromhex(
    "0000000000000064 00000049 00000007 02 4bd72742 0000 00000001 0000018bcfe56800"
    "0000018bcfe56805" + NONE16 + "00000002"
    "2000000002 6b 04 7631 04 02 68 02 78 02 6e 01"
    "0c000a02010100"
)
COMMIT_MARKER = bytes.fromhex(
    "0000000000000066 00000042 00000007 02 cc2f8cd8 0030 00000000 0000018bcfe56809"
    "0000018bcfe56809 0000000000001092 0003 ffffffff 00000001"
    "2000000008000000010c00000000000c00"
)
EMPTIED = bytes.fromhex(
    "00000000000000c8 00000031 00000007 02 3d131e7f 0010 00000009 ffffffffffffffff"
    "0000018bcfe56832 0000000000001092 0003 00000011 00000000"
)
DELETE_HORIZON = bytes.fromhex(
    "000000000000012c 0000003c 00000007 02 9019ba4a 0040 00000003 0000018bd50bc400"
    "0000018bcfe56800" + NONE16 + "00000001"
    "1400ffefb252 04026b0100"
)
LZ4 = bytes.fromhex(
    "0000000000000000 00000052 ffffffff 02 d4d10335 0003 00000000 0000018bcfe56800"
    "0000018bcfe56800"
    + NONE16
    + "00000001 04224d18604082 12000000 8f72000000026b6476 01001a5076767676 0000000000"
)
EXAMPLES = {
    "records": RECORDS,
    "commit_marker": COMMIT_MARKER,
    "emptied": EMPTIED,
    "delete_horizon": DELETE_HORIZON,
    "lz4": LZ4,
}
SIZES = {"records": 85, "commit_marker": 78, "emptied": 61, "delete_horizon": 72, "lz4": 94}

OFFSET_INDEX = bytes.fromhex("00000028 00001036 00000063 0000206c")
TIME_INDEX = bytes.fromhex("0000018bcfe56800 00000028 0000018bcfe571c4 00000058")


# ---- reading the examples ----


@pytest.mark.parametrize("name", EXAMPLES)
def test_worked_batch_is_whole_and_has_its_size(name: str) -> None:
    """Length, magic and CRC are valid."""
    assert SIZES[name] == len(EXAMPLES[name])
    assert STATUS_CODES["OK"] == check_batch(EXAMPLES[name])


def test_worked_records_are_read() -> None:
    """Offsets, timestamps, a header with a null value, and a record of nulls."""
    batch = BatchView(RECORDS)
    header = batch.header
    assert (100, 101, 7, 0, T, T + 5, -1, -1, -1, 2) == (
        header.base_offset,
        header.last_offset,
        header.partition_leader_epoch,
        header.attributes,
        header.base_timestamp,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.record_count,
    )
    assert [
        Record(
            key=b"k",
            value=b"v1",
            headers=[("h", b"x"), ("n", None)],
            timestamp_ms=T,
            offset=100,
        ),
        Record(timestamp_ms=T + 5, offset=101),
    ] == batch.records()


def test_worked_commit_marker_is_read() -> None:
    """The batch is transactional, with one record and without a sequence."""
    header = parse_header(COMMIT_MARKER)
    assert (102, 4242, 3, -1, True, True) == (
        header.base_offset,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        header.is_control,
    )
    (record,) = BatchView(COMMIT_MARKER).records()
    marker = decode_control(record.key, record.value)
    assert (ControlType.COMMIT, 12) == (marker.type, marker.fields["coordinatorEpoch"])
    assert T + 9 == record.timestamp_ms


def test_worked_emptied_batch_is_read() -> None:
    """The batch has no record, but ten offsets and the last sequence."""
    header = parse_header(EMPTIED)
    assert (200, 209, 26, 0, -1, T + 50) == (
        header.base_offset,
        header.last_offset,
        header.last_sequence,
        header.record_count,
        header.base_timestamp,
        header.max_timestamp,
    )
    assert [] == BatchView(EMPTIED).records()


def test_worked_delete_horizon_is_read() -> None:
    """The horizon replaces the base timestamp, and the tombstone keeps its timestamp."""
    batch = BatchView(DELETE_HORIZON)
    assert T + 86_400_000 == batch.header.delete_horizon_ms
    assert (300, 303) == (batch.base_offset, batch.last_offset)
    assert [Record(key=b"k", timestamp_ms=T, offset=302)] == batch.records()


def test_worked_lz4_batch_is_read() -> None:
    """The batch has one record of fifty equal bytes."""
    assert [Record(key=b"k", value=b"v" * 50, timestamp_ms=T, offset=0)] == BatchView(LZ4).records()


# ---- writing the examples ----


def test_worked_records_are_written() -> None:
    """The written bytes equal the example."""
    builder = BatchBuilder()
    builder.append(b"k", b"v1", T, [("h", b"x"), ("n", None)])
    builder.append(None, None, T + 5)
    assert RECORDS == builder.finish(base_offset=100, partition_leader_epoch=7)


def test_worked_commit_marker_is_written() -> None:
    """The written bytes equal the example."""
    builder = BatchBuilder()
    builder.append(bytes.fromhex("00000001"), bytes.fromhex("00000000000c"), T + 9)
    assert COMMIT_MARKER == builder.finish(
        base_offset=102,
        partition_leader_epoch=7,
        producer_id=4242,
        producer_epoch=3,
        transactional=True,
        control=True,
    )


def test_worked_emptied_batch_is_written() -> None:
    """The written bytes equal the example."""
    assert EMPTIED == BatchBuilder().finish(
        base_offset=200,
        partition_leader_epoch=7,
        max_timestamp=T + 50,
        producer_id=4242,
        producer_epoch=3,
        base_sequence=17,
        transactional=True,
        last_offset_delta=9,
    )


def test_worked_delete_horizon_is_written() -> None:
    """The written bytes equal the example."""
    builder = BatchBuilder()
    builder.reset(base_timestamp=T + 86_400_000)
    builder.append_at(2, b"k", None, T)
    assert DELETE_HORIZON == builder.finish(
        base_offset=300,
        partition_leader_epoch=7,
        delete_horizon=True,
        last_offset_delta=3,
    )


def test_worked_lz4_batch_is_written() -> None:
    """Bytes outside the frame are equal; its contents depend on the compressor."""
    builder = BatchBuilder()
    builder.append(b"k", b"v" * 50, T)
    batch = bytes(builder.finish(codec=Codec.LZ4, payload=LZ4[61:]))
    assert LZ4 == batch
    assert bytes(builder.payload()) == bytes(decompress(Codec.LZ4, LZ4[61:], limit_bytes=1000))


# ---- CRC, offsets and append time ----


def test_worked_records_keep_their_crc_through_offset_and_epoch() -> None:
    """The CRC covers neither: a leader writes both without reading the batch."""
    data = bytearray(RECORDS)
    assert 2 == assign_offsets(data, base_offset=0, partition_leader_epoch=-1)
    assert (0, -1, 0x4BD72742) == (
        parse_header(data).base_offset,
        parse_header(data).partition_leader_epoch,
        parse_header(data).crc,
    )
    assert STATUS_CODES["OK"] == check_batch(data)


def test_worked_records_get_a_new_crc_with_log_append_time() -> None:
    """The CRC covers type and timestamp."""
    data = bytearray(RECORDS)
    set_max_timestamp(data, 0, timestamp_type=1, max_timestamp=T + 99)
    assert 0x4BD72742 != parse_header(data).crc
    assert STATUS_CODES["OK"] == check_batch(data)
    assert [T + 99, T + 99] == [record.timestamp_ms for record in BatchView(data).records()]


# ---- refused bytes ----

GOOD = (Entry(0, 0, b"k", b"v1"), Entry(1, 5, None, None))
GOOD_PAYLOAD = reference_records.encode(GOOD)
HEADER = Header(
    base_offset=0, last_offset_delta=1, base_timestamp=T, max_timestamp=T + 5, record_count=2
)


def made(payload: bytes = GOOD_PAYLOAD, **fields: int) -> bytes:
    """Return a batch with a valid CRC around the given payload and fields."""
    return reference.encode_batch(replace(HEADER, **fields), payload)


def with_length(batch: bytes, length: int) -> bytes:
    """Return the batch with another length in its header."""
    return batch[:8] + length.to_bytes(4, "big", signed=True) + batch[12:]


ONE = {"record_count": 1, "last_offset_delta": 0}
REFUSED = {
    "count_minus_1": made(record_count=-1),
    "count_3_with_2_records": made(record_count=3, last_offset_delta=2),
    "count_1_with_2_records": made(record_count=1),
    "batch_length_48": with_length(made(), 48),
    "batch_length_13": with_length(made(), 13),
    "magic_3": made(magic=3),
    "header_count_minus_1": made(bytes.fromhex("0c 00 00 00 01 01 01"), **ONE),
    "header_key_null": made(bytes.fromhex("10 00 00 00 01 01 02 01 01"), **ONE),
    "varint_too_long": made(bytes.fromhex("16 00 00 00 80 80 80 80 80 00 01 00"), **ONE),
    "length_varint_too_long": made(bytes.fromhex("80 80 80 80 80 00 00 00 00 00 00"), **ONE),
    "key_length_past_the_record": made(bytes.fromhex("0c 00 00 00 14 01 00") + bytes(20), **ONE),
}


def test_good_batch_of_the_refusals_is_accepted() -> None:
    """The batch from which the cases below are made is sound."""
    assert [(b"k", b"v1"), (None, None)] == BatchView(made()).tuples()


@pytest.mark.parametrize("name", REFUSED)
def test_listed_damage_is_refused_by_every_entry_point(name: str, tmp_path: Path) -> None:
    """Objects, tuples, lists, the check without records, and an append."""
    data = REFUSED[name]
    for read in (BatchView.records, BatchView.tuples, BatchView.lists, BatchView.check_records):
        with pytest.raises(CorruptRecordError):
            read(BatchView(data))
    with manual_log(tmp_path / "orders-0") as log:
        with pytest.raises((CorruptRecordError, InvalidRecordError)):
            log.append_batches(data)
        assert 0 == log.log_end_offset


# ---- accepted bytes ----


def test_longer_varints_than_needed_are_accepted() -> None:
    """Zero in three bytes, the length of a key in five."""
    body = bytes.fromhex("00 808000 00 8280808000 6b 04 7631 00")
    payload = bytes([2 * len(body)]) + body
    assert [Record(key=b"k", value=b"v1", timestamp_ms=T, offset=0)] == BatchView(
        made(payload, **ONE)
    ).records()


@pytest.mark.parametrize("size", [1, 11, 12, 16, 17, 60, 70])
def test_partial_last_batch_ends_the_walk_without_error(size: int, tmp_path: Path) -> None:
    """A walk stops before it, and recovery truncates it."""
    data = made()
    result = scan_batches(data + made(base_offset=2)[:size])
    assert (1, len(data), "TRUNCATED") == (
        result.count,
        result.position,
        status_name(result.status),
    )
    assert_recovered(tmp_path / "orders-0", data, made(base_offset=2)[:size])


@pytest.mark.parametrize("tail", [b"\0" * 11, b"\xff" * 11], ids=["zeros", "ones"])
def test_eleven_bytes_of_any_value_end_the_walk_without_error(tail: bytes, tmp_path: Path) -> None:
    """The length field is incomplete, so they may be the start of a batch."""
    result = scan_batches(made() + tail)
    assert (1, "TRUNCATED") == (result.count, status_name(result.status))
    assert_recovered(tmp_path / "orders-0", made(), tail)


def assert_recovered(directory: Path, good: bytes, tail: bytes) -> None:
    """Open a directory whose segment has a tail, and assert that only the valid part is read."""
    directory.mkdir()
    file = directory / f"{0:020d}.log"
    file.write_bytes(good + tail)
    with open_log(directory) as log:
        assert [(0, b"v1"), (1, None)] == [(r.offset, r.value) for r in log.records(0)]
        assert 2 == log.log_end_offset
    assert good == file.read_bytes()


def test_batch_without_records_on_disk_is_skipped(tmp_path: Path) -> None:
    """Offsets of an emptied batch count; records come from the batch after it."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    behind = made(base_offset=210)
    (directory / f"{200:020d}.log").write_bytes(EMPTIED + behind)
    with open_log(directory) as log:
        assert [210, 211] == [record.offset for record in log.records(200)]
        assert 212 == log.log_end_offset


@pytest.mark.parametrize("bit", range(7, 16))
def test_unknown_attribute_bit_is_ignored(bit: int) -> None:
    """Nine bits are unused."""
    attributes = (1 << bit) - (1 << 16 if bit == 15 else 0)
    assert [(b"k", b"v1"), (None, None)] == BatchView(made(attributes=attributes)).tuples()


@pytest.mark.parametrize("flags", [0x60, 0x68, 0x70, 0x64, 0x7C])
def test_lz4_frame_with_sizes_and_checksums_is_decoded(flags: int) -> None:
    """Other writers set content size and checksums of blocks and content."""
    descriptor = bytes([flags, 0x40])
    if flags & 0x08:
        descriptor += len(GOOD_PAYLOAD).to_bytes(8, "little")
    frame = b"\x04\x22\x4d\x18" + descriptor
    frame += bytes([slow_codecs.xxh32(descriptor) >> 8 & 0xFF])
    frame += (len(GOOD_PAYLOAD) | 1 << 31).to_bytes(4, "little") + GOOD_PAYLOAD
    if flags & 0x10:
        frame += slow_codecs.xxh32(GOOD_PAYLOAD).to_bytes(4, "little")
    frame += bytes(4)
    if flags & 0x04:
        frame += slow_codecs.xxh32(GOOD_PAYLOAD).to_bytes(4, "little")
    batch = made(frame, attributes=Codec.LZ4)
    assert [(b"k", b"v1"), (None, None)] == BatchView(batch).tuples()


# ---- index files ----


def staged_entries() -> tuple[bytes, bytes]:
    """Return the index entries of four batches from offset 5000, more than 4096 bytes apart."""
    facts = BatchMetadata(
        [
            (4150, 5000, 5010, T - 5, 5010),
            (4000, 5011, 5040, T, 5040),
            (150, 5041, 5088, T + 2500, 5088),
            (100, 5089, 5099, T, 5099),
        ]
    )
    stage = RollPlanner(5000, offset_entries_max=100, time_entries_max=100)
    stage.set_limits(segment_bytes=2**20, interval_bytes=4096, roll_after_ms=2**40)
    assert (4, 8400) == stage.plan(facts, 0, 0, 0)
    return stage.ready_entries()


def test_worked_offset_index_is_read_and_written() -> None:
    """Base 5000, entries 5040 at 4150 and 5099 at 8300; a floor below the first is the base."""
    assert OFFSET_INDEX == staged_entries()[0]
    view = OffsetIndexView(OFFSET_INDEX, 5000)
    assert [(5040, 4150), (5099, 8300)] == [view.entry(slot) for slot in range(len(view))]
    assert [(5000, 0), (5040, 4150), (5040, 4150), (5099, 8300)] == [
        view.lookup(offset) for offset in (5039, 5040, 5098, 9999)
    ]
    assert (2, True) == check_offset_index(OFFSET_INDEX, segment_size=8301)


def test_worked_time_index_is_read_and_written() -> None:
    """Base 5000, T at 5040 and T+2500 at 5088."""
    assert TIME_INDEX == staged_entries()[1]
    view = TimeIndexView(TIME_INDEX, 5000)
    assert [(T, 5040), (T + 2500, 5088)] == [view.entry(slot) for slot in range(len(view))]
    assert [(-1, 5000), (T, 5040), (T + 2500, 5088)] == [
        view.lookup(timestamp) for timestamp in (T - 1, T + 2499, T + 9999)
    ]
    assert (2, True) == check_time_index(TIME_INDEX)


def test_worked_index_with_an_unclean_zero_tail_counts_its_entries() -> None:
    """A kill leaves preallocated zeros, which are not entries."""
    assert (2, True) == check_offset_index(OFFSET_INDEX + bytes(800), segment_size=8301)
    assert (2, True) == check_time_index(TIME_INDEX + bytes(1200))
