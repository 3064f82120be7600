"""Tests of records of Kafka's internal topics: those of real brokers, and every prefix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafkalog import CorruptRecordError, TopicPartition, open_log
from kafkalog.clients import offset_records, transaction_records
from kafkalog.clients.internal_topics import partition_for
from kafkalog.clients.offset_records import CommittedOffset, GroupPartition
from kafkalog.clients.transaction_records import TransactionRecord, TransactionState
from tests.support import golden

OFFSETS = ("__consumer_offsets-0", "__consumer_offsets-1")
STATES = [
    (data_set, f"__transaction_state-{number}")
    for data_set in (golden.CLEAN, golden.UNCLEAN)
    for number in (0, 1)
]


def records_of(data_set: str, partition: str) -> list[tuple[bytes, bytes | None]]:
    """Return keys and values of a golden partition."""
    with open_log(golden.data_directory(data_set) / partition, read_only=True) as log:
        return [(each.key or b"", each.value) for each in log.records()]


@pytest.mark.parametrize(("data_set", "partition"), STATES)
def test_transaction_record_of_a_broker_round_trips(data_set: str, partition: str) -> None:
    """Keys and values of version 0 byte for byte; version 1 with equal content."""
    found = records_of(data_set, partition)
    assert found
    for key, value in found:
        transactional_id = transaction_records.decode_key(key)
        assert transactional_id is not None
        assert partition.endswith(f"-{partition_for(transactional_id, 2)}")
        assert key == transaction_records.encode_key(transactional_id)
        assert value is not None
        record = transaction_records.decode_value(value)
        again = transaction_records.encode_value(record)
        # Tagged fields are not part of version 0.
        record = replace(record, has_own_epochs=False, other_producer_ids=())
        assert record == transaction_records.decode_value(again)
        if value[:2] == bytes(2):
            assert value == again


def test_transaction_record_of_a_broker_has_these_fields() -> None:
    """A record of version 1, decoded by hand."""
    value = bytes.fromhex(
        "0001000000000000000e000b0036ee800203135f5f636f6e73756d65725f6f6666736574730200000000000d"
        "7472616e73616374696f6e73020000000000000001a1fd1fe5d7000001a1fd1fe56a0102020002"
    )
    assert value in [each for _key, each in records_of(*STATES[0])]
    expected = TransactionRecord(
        producer_id=14,
        producer_epoch=11,
        timeout_ms=3_600_000,
        state=TransactionState.PREPARE_COMMIT,
        partitions=(TopicPartition("__consumer_offsets", 0), TopicPartition("transactions", 0)),
        last_update_ms=0x1A1FD1FE5D7,
        start_ms=0x1A1FD1FE56A,
        has_own_epochs=True,
    )
    assert expected == transaction_records.decode_value(value)


@pytest.mark.parametrize("partition", OFFSETS)
def test_offset_record_of_a_broker_round_trips(partition: str) -> None:
    """Keys byte for byte; values of version 4 with equal content in version 3."""
    found = [
        (offset_records.decode_key(key), key, value)
        for key, value in records_of(golden.CLEAN, partition)
    ]
    positions = [(where, key, value) for where, key, value in found if where is not None]
    assert positions
    for where, key, value in positions:
        assert partition.endswith(f"-{partition_for(where.group, 2)}")
        assert key == offset_records.encode_key(where)
        if value is not None:
            position = offset_records.decode_value(value)
            again = offset_records.encode_value(position)
            assert position == offset_records.decode_value(again)


def test_offset_record_of_a_broker_has_these_fields() -> None:
    """A position committed by hand, and a position of a transaction."""
    by_hand = records_of(golden.CLEAN, OFFSETS[1])[0]
    assert GroupPartition("by-hand-1", "plain", 1) == offset_records.decode_key(by_hand[0])
    assert by_hand[1] is not None
    position = offset_records.decode_value(by_hand[1])
    assert CommittedOffset(18, "by hand \N{SNOWMAN}", None, 0x1A1FD1FF28F) == position


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_offset_value_of_each_version_is_read(version: int) -> None:
    """Values of all versions of brokers, built by hand."""
    head, offset = version.to_bytes(2), (77).to_bytes(8)
    epoch = (5).to_bytes(4) if version >= 3 else b""
    text = b"\x06hello" if version >= 4 else b"\0\x05hello"
    times = (1234).to_bytes(8) + ((9999).to_bytes(8) if version == 1 else b"")
    value = head + offset + epoch + text + times + (b"\0" if version >= 4 else b"")
    expected = CommittedOffset(77, "hello", 5 if version >= 3 else None, 1234)
    assert expected == offset_records.decode_value(value)


def test_offset_value_prefix_raises() -> None:
    """Nothing is read past the end."""
    value = offset_records.encode_value(CommittedOffset(7, "text", 3, 55))
    for size in range(len(value)):
        with pytest.raises(CorruptRecordError):
            offset_records.decode_value(value[:size])
    key = offset_records.encode_key(GroupPartition("group", "topic", 3))
    for size in range(len(key)):
        with pytest.raises(CorruptRecordError):
            offset_records.decode_key(key[:size])


def test_transaction_value_prefix_raises() -> None:
    """Nothing is read past the end, in both versions."""
    ours = transaction_records.encode_value(
        TransactionRecord(
            1,
            2,
            3,
            TransactionState.ONGOING,
            (TopicPartition("a", 0), TopicPartition("a", 3)),
            4,
            5,
        )
    )
    theirs = next(value for _key, value in records_of(*STATES[0]) if value is not None)
    for value, size_min in ((ours, len(ours)), (theirs, len(theirs) - 1)):
        for size in range(size_min):
            with pytest.raises(CorruptRecordError):
                transaction_records.decode_value(value[:size])
    key = transaction_records.encode_key("name")
    for size in range(len(key)):
        with pytest.raises(CorruptRecordError):
            transaction_records.decode_key(key[:size])


def test_value_of_unknown_version_or_state_raises() -> None:
    """Values of newer brokers are not guessed."""
    with pytest.raises(CorruptRecordError, match="version 5"):
        offset_records.decode_value(b"\0\x05" + bytes(40))
    with pytest.raises(CorruptRecordError, match="version 2"):
        transaction_records.decode_value(b"\0\x02" + bytes(60))
    with pytest.raises(CorruptRecordError, match="state 9"):
        transaction_records.decode_value(bytes(16) + b"\x09" + bytes(60))


def test_key_of_another_kind_is_skipped() -> None:
    """Group members belong to the broker."""
    assert offset_records.decode_key(b"\0\x02\0\x05group") is None
    assert transaction_records.decode_key(b"\0\x01\0\x02id") is None


@pytest.mark.parametrize(
    ("name", "hash_of_java"),
    [
        ("", 0),
        ("a", 97),
        ("orders", -1008770331),
        ("polygenelubricants", -(2**31)),
        ("\N{GRINNING FACE}", 1772899),
    ],
)
def test_partition_for_a_name_uses_javas_hash(name: str, hash_of_java: int) -> None:
    """The absolute value, 0 for the number without one, modulo the partitions."""
    expected = 0 if hash_of_java == -(2**31) else abs(hash_of_java) % 50
    assert expected == partition_for(name, 50)
