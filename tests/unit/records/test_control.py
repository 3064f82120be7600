"""Tests of control records: those of the golden data, all their prefixes, and hostile lengths."""

from __future__ import annotations

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._core.assign_offsets import assign_offsets
from kafkalog.errors import CorruptRecordError
from kafkalog.records.control import ControlRecord, ControlType, decode_control, encode_marker
from tests.support.golden import CLEAN, GOLDEN, Manifest, RecordFact, all_partitions
from tests.support.manifest import parse_record

METADATA = "__cluster_metadata-0"


def metadata_snapshot() -> list[RecordFact]:
    """Records of the metadata log's checkpoint file, which has a separate manifest."""
    name = f"{METADATA}.00000000000000000000-0000000000.checkpoint.jsonl.gz"
    with gzip.open(GOLDEN / CLEAN / "manifests" / name, "rt") as stream:
        return [parse_record(json.loads(line)) for line in stream]


def one_of_each() -> dict[str, RecordFact]:
    """The first control record of each type in the golden data."""
    facts = [
        fact
        for partition in (METADATA, "transactions-0")
        for fact in Manifest(CLEAN, partition).records()
        if fact.is_control
    ]
    found: dict[str, RecordFact] = {}
    for fact in facts + [fact for fact in metadata_snapshot() if fact.is_control]:
        assert fact.control_type is not None
        found.setdefault(fact.control_type, fact)
    return found


@pytest.mark.parametrize(("data_set", "partition"), all_partitions())
def test_decode_control_golden_records_equal_the_manifest(data_set: str, partition: str) -> None:
    """Type and fields of every control record a broker wrote are as Kafka's classes show them."""
    for fact in Manifest(data_set, partition).records():
        if fact.is_control:
            decoded = decode_control(fact.key, fact.value)
            assert fact.control_type == decoded.type.name.lower()
            assert fact.control_value == decoded.fields


@pytest.mark.parametrize("partition", ["transactions-0", "transactions-1"])
def test_encode_marker_equals_every_marker_of_a_broker(partition: str) -> None:
    """Byte for byte, with the offset and the leader epoch that the log has stamped."""
    manifest = Manifest(CLEAN, partition)
    segments = {path.name: path.read_bytes() for path in manifest.directory.glob("*.log")}
    count = 0
    for fact in manifest.records():
        if not fact.is_control:
            continue
        written = segments[fact.segment][fact.position : fact.position + fact.batch_size]
        marker = bytearray(
            encode_marker(
                fact.producer_id,
                fact.producer_epoch,
                fact.control_value["coordinatorEpoch"],
                fact.timestamp_ms,
                is_abort=fact.control_type == "abort",
            )
        )
        assert 78 == len(marker)
        assign_offsets(marker, base_offset=fact.offset, partition_leader_epoch=fact.leader_epoch)
        assert written == marker
        count += 1
    assert count > 30


def test_decode_control_metadata_snapshot_equals_the_manifest() -> None:
    """Header and footer of a KRaft snapshot, which no log has."""
    decoded = [
        (each.type.name.lower(), each.fields)
        for each in (
            decode_control(fact.key, fact.value) for fact in metadata_snapshot() if fact.is_control
        )
    ]

    assert decoded == [
        (fact.control_type, fact.control_value) for fact in metadata_snapshot() if fact.is_control
    ]
    assert {"snapshot_header", "snapshot_footer"} <= {name for name, _ in decoded}


def test_decode_control_golden_data_has_every_type() -> None:
    """The tests above have seen each type at least once."""
    assert {kind.name.lower() for kind in ControlType if kind != ControlType.UNKNOWN} == set(
        one_of_each()
    )


@pytest.mark.parametrize("name", ["commit", "leader_change", "snapshot_header", "kraft_voters"])
def test_decode_control_truncated_value_is_rejected(name: str) -> None:
    """Every proper prefix that cuts a field is an error, never an index past the end."""
    fact = one_of_each()[name]
    assert fact.value is not None
    whole = decode_control(fact.key, fact.value)
    for size in range(len(fact.value)):
        try:
            decoded = decode_control(fact.key, fact.value[:size])
        except CorruptRecordError:
            continue
        # Only the tagged fields at the very end, which are not read, may be missing.
        assert whole == decoded
        assert size >= len(fact.value) - 1


def test_decode_control_leader_change_version_1_has_directory_ids() -> None:
    """The second version of the message carries a directory id for each voter."""
    voter = (7).to_bytes(4) + bytes(range(16)) + b"\x00"
    value = b"\x00\x01" + (7).to_bytes(4) + b"\x02" + voter + b"\x01" + b"\x00"

    expected = {
        "version": 1,
        "leaderId": 7,
        "voters": [{"voterId": 7, "voterDirectoryId": "AAECAwQFBgcICQoLDA0ODw"}],
        "grantingVoters": [],
    }
    assert expected == decode_control(b"\x00\x00\x00\x02", value).fields


def test_decode_control_tagged_fields_are_skipped() -> None:
    """A newer writer's tagged fields do not disturb what is known."""
    voter = (7).to_bytes(4) + b"\x01\x05\x03abc"
    value = b"\x00\x00" + (7).to_bytes(4) + b"\x02" + voter + b"\x01" + b"\x00"

    assert [{"voterId": 7}] == decode_control(b"\x00\x00\x00\x02", value).fields["voters"]


def test_decode_control_unknown_type_is_no_error() -> None:
    """A type of the future is named by its number; a longer key is taken."""
    key = b"\x00\x01\x00\x63more"

    assert ControlRecord(ControlType.UNKNOWN, 99, {}) == decode_control(key, b"anything")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00"),
        (b"\xff\xff\x00\x01", b"\x00\x00\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x01", None),
        (b"\x00\x00\x00\x01", b"\xff\xff\x00\x00\x00\x00"),
        (b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x01\xff\xff\xff\xff\x0f"),
        (b"\x00\x00\x00\x02", b"\x00\x00\x00\x00\x00\x01\x00"),
        (b"\x00\x00\x00\x06", b"\x00\x00\xff\xff\xff\xff\xff\x0f"),
    ],
)
def test_decode_control_bad_bytes_are_rejected(key: bytes | None, value: bytes | None) -> None:
    """Short keys, negative versions, null arrays, counts and varints that lie."""
    with pytest.raises(CorruptRecordError):
        decode_control(key, value)


@given(kind=st.integers(0, 6), value=st.binary(max_size=80))
def test_decode_control_any_bytes_decode_or_are_rejected(kind: int, value: bytes) -> None:
    """No input ends in anything but a record or CorruptRecordError."""
    try:
        decoded = decode_control(b"\x00\x00" + kind.to_bytes(2), value)
    except CorruptRecordError:
        return
    assert kind == decoded.type_id
