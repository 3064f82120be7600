"""Tests of messages of magic 0 and 1 as batches: headers, scans, look-ups, offsets."""

from __future__ import annotations

import pickle
import struct
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch import (
    BatchColumns,
    assign_offsets,
    check_batch,
    find_batch,
    find_offset,
    find_timestamp,
    parse_header,
    scan_batches,
    set_entry_offset,
    set_max_timestamp,
)
from kafkalog._core.record import check_records, decode_records
from kafkalog._core.status import STATUS_CODES, status_name
from kafkalog.errors import InvalidRecordError, OffsetOverflowError
from tests.support import golden, reference
from tests.support.buffers import exact
from tests.support.examples import examples

SETS = golden.vectors("legacy")["sets"]
NAMES = [case["name"] for case in SETS]

NO_TYPE, CREATE, APPEND = -1, 0, 1
TYPES = {"NoTimestampType": NO_TYPE, "CreateTime": CREATE, "LogAppendTime": APPEND}


def message(
    offset: int,
    magic: int,
    value: bytes = b"value",
    *,
    timestamp: int = 1000,
    attributes: int = 0,
) -> bytes:
    """Return one message without a key, with a valid CRC."""
    body = bytes([magic, attributes])
    body += struct.pack(">q", timestamp) if magic else b""
    body += struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def v2_batch(base_offset: int) -> bytes:
    """Return a batch of magic 2 without records."""
    return reference.encode_batch(reference.Header(base_offset=base_offset, max_timestamp=7))


MIXED = message(5, 0) + message(9, 0, attributes=1) + message(10, 1) + v2_batch(11) + message(20, 1)


@pytest.mark.parametrize("case", SETS, ids=NAMES)
def test_scan_of_kafkas_message_sets_finds_its_messages(case: dict[str, Any]) -> None:
    """Every outer message is one batch, with the offset, timestamp, codec and CRC of Kafka."""
    data = bytes.fromhex(case["hex"])
    columns = BatchColumns(len(case["messages"]) + 1)
    result = scan_batches(exact(data), columns=columns)
    assert (len(case["messages"]), len(data), 0) == result[:3]
    for row, expected in enumerate(case["messages"]):
        header = parse_header(exact(data), expected["position"])
        assert header.position == columns.position[row]
        assert expected["magic"] == header.magic == columns.magic[row]
        assert expected["offset"] == header.base_offset == header.last_offset
        assert expected["offset"] == columns.base_offset[row] == columns.last_offset[row]
        assert expected["crc"] == header.crc == columns.crc[row]
        assert TYPES[expected["timestamp_type"]] == header.timestamp_type
        stamp = -1 if expected["timestamp"] is None else expected["timestamp"]
        assert stamp == header.max_timestamp == header.base_timestamp == columns.max_timestamp[row]
        compressed = expected["compression"] != "none"
        assert compressed == header.is_wrapper
        assert (-1 if compressed else 1) == header.record_count == columns.record_count[row]
        assert (-1, -1, -1, -1) == (
            header.partition_leader_epoch,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
        )
        assert not header.is_transactional
        assert not header.is_control
        assert header.delete_horizon_ms is None
        assert header == pickle.loads(pickle.dumps(header))


def test_header_unused_attribute_bits_of_old_messages_are_ignored() -> None:
    """Magic 0 has the codec only, magic 1 also the timestamp type."""
    old, newer = (
        parse_header(message(0, 0, attributes=0xFA)),
        parse_header(message(0, 1, attributes=0xFA)),
    )
    assert (2, NO_TYPE) == (old.attributes, old.timestamp_type)
    assert (2 + 8, APPEND) == (newer.attributes, newer.timestamp_type)
    assert "magic=0" in repr(old)


def test_scan_of_mixed_formats_walks_them_as_one_log() -> None:
    """Magic 0, 1 and 2 are in any order; offsets rise over all of them."""
    columns = BatchColumns(10)
    result = scan_batches(exact(MIXED), columns=columns)
    assert (5, len(MIXED), 0, 21, 1000, 10) == tuple(result)
    assert [0, 0, 1, 2, 1] == columns.magic[:5].tolist()
    assert [1, -1, 1, 0, 1] == columns.record_count[:5].tolist()
    swapped = message(10, 1) + message(10, 0)
    assert "OFFSET_ORDER" == status_name(scan_batches(swapped).status)


def test_scan_of_a_cut_message_is_truncated_anywhere() -> None:
    """Whole messages are found, the rest is TRUNCATED."""
    starts = [0, *(parse_header(MIXED, at).end_position for at in walk(MIXED))]
    for size in range(len(MIXED)):
        result = scan_batches(exact(MIXED[:size]))
        assert max(start for start in starts if start <= size) == result.position
        assert status_name(result.status) == ("OK" if size in starts else "TRUNCATED")


def walk(data: bytes) -> list[int]:
    """Return where the batches of a good run begin."""
    return [position for position, _ in reference.scan_batches(data).batches]


def test_check_of_a_flipped_bit_equals_the_reference() -> None:
    """Every bit of a message; the CRC covers all fields except offset and length."""
    for magic in (0, 1):
        good = message(3, magic)
        for bit in range(8 * len(good)):
            damaged = bytearray(good)
            damaged[bit // 8] ^= 1 << bit % 8
            expected = reference.check_batch(bytes(damaged))
            assert expected == status_name(check_batch(exact(bytes(damaged))))
            assert bit < 64 or expected != "OK"


def test_find_offset_and_timestamp_use_the_last_offset_and_timestamp() -> None:
    """A wrapper reaches its own offset; a message of magic 0 reaches no timestamp."""
    starts = walk(MIXED)
    reached = {5: 0, 6: 1, 9: 1, 10: 2, 11: 3, 12: 4, 20: 4}
    for offset, slot in reached.items():
        assert (starts[slot], 0) == find_offset(exact(MIXED), offset)
    assert (len(MIXED), STATUS_CODES["TRUNCATED"]) == find_offset(exact(MIXED), 21)
    assert (starts[2], 0) == find_timestamp(exact(MIXED), 0)
    assert (0, 0) == find_timestamp(exact(MIXED), -1)


@settings(max_examples=examples(60))
@given(
    noise=st.binary(max_size=200),
    magics=st.lists(st.integers(0, 2), min_size=1, max_size=4),
    position=st.integers(0, 20),
    low=st.integers(0, 6),
)
def test_find_batch_of_any_magic_equals_the_reference(
    noise: bytes, magics: list[int], position: int, low: int
) -> None:
    """After any noise: the first valid batch of any format with offsets in the range."""
    data = noise + b"".join(
        v2_batch(at) if magic == 2 else message(at, magic) for at, magic in enumerate(magics)
    )
    expected = reference.find_batch(data, position, low, 4)
    position = min(position, len(data))
    assert expected == find_batch(exact(data), position, offset_min=low, offset_max=4)


@pytest.mark.parametrize("shift", range(0, 140, 7))
@pytest.mark.parametrize("filler", [0, 1, 255])
def test_find_batch_at_every_position_of_a_block_is_found(shift: int, filler: int) -> None:
    """The search skips blocks of positions, but no batch and not the end."""
    for good in (message(3, 0, b""), message(3, 1, b""), v2_batch(3)):
        data = bytes([filler]) * shift + good
        assert shift == find_batch(exact(data), 0, offset_min=1, offset_max=9)
        assert -1 == find_batch(exact(data), 0, offset_min=4, offset_max=9)
        assert -1 == find_batch(exact(data[:-1]), 0, offset_min=1, offset_max=9)


def test_find_batch_in_hostile_messages_stays_linear() -> None:
    """
    Eight megabytes of overlapping headers of both formats, each reaching four megabytes ahead.

    A CRC of each would read a terabyte and take minutes; compare the test of magic 2.
    """
    fake = b"".join(struct.pack(">qiIBB", 50, 4_000_000, 0, magic, 0) for magic in (0, 1))
    hostile = fake * (8_000_000 // len(fake))
    data = hostile + bytes(20_000) + message(60, 1)
    assert len(hostile) + 20_000 == find_batch(data, 0, offset_max=100)


def test_old_batch_is_refused_by_the_decoders_of_v2() -> None:
    """STATUS_LEGACY: these kernels would read arbitrary fields of an old message."""
    for data in (message(3, 0), message(3, 1, attributes=1)):
        header = parse_header(data)
        assert STATUS_CODES["LEGACY"] == check_records(data, header, 18, len(data))
        with pytest.raises(InvalidRecordError, match="old message format"):
            decode_records(data, header, 18, len(data))


def test_assign_offsets_to_messages_assigns_one_each() -> None:
    """No CRC covers the offset, and old formats have no leader epoch."""
    run = message(0, 0) + message(0, 1) + v2_batch(0) + message(0, 1)
    data = bytearray(run)
    assert 104 == assign_offsets(data, base_offset=100, partition_leader_epoch=3)
    assert (reference.assign_offsets(run, 100, 3)[0], 104) == (bytes(data), 104)
    assert 0 == scan_batches(data, next_offset=100).status
    wrapper = bytearray(message(0, 1) + message(0, 1, attributes=1))
    with pytest.raises(InvalidRecordError, match="compressed"):
        assign_offsets(wrapper, base_offset=100)
    assert message(0, 1) + message(0, 1, attributes=1) == wrapper


def test_set_entry_offset_changes_nothing_else() -> None:
    """A wrapper, a plain message and a v2 batch."""
    for make in (lambda at: message(at, 0, attributes=1), lambda at: message(at, 1), v2_batch):
        data = bytearray(b"xyz" + make(4))
        set_entry_offset(data, 3, offset=77)
        assert b"xyz" + make(77) == data
    with pytest.raises(ValueError, match="offset must be in"):
        set_entry_offset(data, 3, offset=-1)
    wide = reference.encode_batch(reference.Header(last_offset_delta=9))
    with pytest.raises(OffsetOverflowError, match="10 offsets"):
        set_entry_offset(bytearray(wide), 0, offset=2**63 - 10)


def test_set_max_timestamp_of_a_message_updates_its_crc() -> None:
    """Magic 1: timestamp, type and CRC are set; attribute bits except the codec are cleared."""
    data = bytearray(message(4, 1, attributes=0x71))
    set_max_timestamp(data, 0, timestamp_type=APPEND, max_timestamp=5)
    assert message(4, 1, timestamp=5, attributes=9) == data
    set_max_timestamp(data, 0, timestamp_type=CREATE, max_timestamp=5)
    assert message(4, 1, timestamp=5, attributes=1) == data


def test_set_max_timestamp_of_magic_0_accepts_only_minus_one() -> None:
    """Magic 0 has no timestamp."""
    data = bytearray(message(4, 0))
    set_max_timestamp(data, 0, timestamp_type=CREATE, max_timestamp=-1)
    for kind, stamp in ((CREATE, 5), (APPEND, -1), (APPEND, 5)):
        with pytest.raises(ValueError, match="magic 0 has no timestamp"):
            set_max_timestamp(data, 0, timestamp_type=kind, max_timestamp=stamp)
    assert message(4, 0) == data
