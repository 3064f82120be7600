"""Assertions: they pass for what is there, and their messages show each difference."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafkalog import LogManager, Record
from kafkalog.testing import (
    ManagerFactory,
    assert_committed,
    assert_offsets,
    assert_records,
    assert_topic_records,
    assert_transaction,
)
from kafkalog.testing.record_difference import (
    ExpectedRecords,
    describe_difference,
    expected_fields,
)

MS = 1_700_000_000_000
RECORDS = [
    Record(key=b"o-1", value=b"paid", timestamp_ms=MS, headers=[("by", b"card")]),
    Record(key=b"o-2", value=b"shipped", timestamp_ms=MS + 1),
    Record(key=b"o-1", value=None, timestamp_ms=MS + 2),
]


@pytest.fixture(name="filled")
def fixture_filled(manager: LogManager) -> LogManager:
    """Manager with three records in orders-0."""
    manager.log("orders").append(RECORDS)
    return manager


def message_of(assertion: Callable[[], object]) -> list[str]:
    """Return the lines of the message of an assertion that fails."""
    with pytest.raises(AssertionError) as failure:
        assertion()
    return [line.strip() for line in str(failure.value).splitlines()]


@pytest.mark.parametrize(
    "expected",
    [
        [b"paid", b"shipped", None],
        [(b"o-1", b"paid"), (b"o-2", b"shipped"), (b"o-1", None)],
        RECORDS,
        [
            Record(key=b"o-1", value=b"paid", headers=[("by", b"card")], offset=0),
            Record(key=b"o-2", value=b"shipped", offset=1),
            Record(key=b"o-1", value=None, offset=2),
        ],
    ],
)
def test_assert_records_compares_the_expected_fields(
    filled: LogManager, expected: ExpectedRecords
) -> None:
    """Values alone, keys with values, or whole records."""
    assert_records(filled.log("orders"), expected)


def test_assert_records_of_an_empty_log_expects_none(manager: LogManager) -> None:
    """An additional record is named with its key and its value."""
    assert_records(manager.log("orders"), [])
    manager.log("orders").append([Record(value=b"v")])
    assert [
        "orders-0 has other records: 0 expected, 1 found with read_uncommitted",
        "additional:   offset 0, key=null value=b'v'",
    ] == message_of(lambda: assert_records(manager.log("orders"), []))


def test_assert_records_shows_missing_and_additional_records(filled: LogManager) -> None:
    """Missing records by their number, additional ones by their offset."""
    assert [
        "orders-0 has other records: 3 expected, 3 found with read_uncommitted",
        "missing:      record 1 of the expected, value=b'packed'",
        "additional:   offset 1, value=b'shipped'",
    ] == message_of(lambda: assert_records(filled.log("orders"), [b"paid", b"packed", None]))


def test_assert_records_shows_records_out_of_order(filled: LogManager) -> None:
    """A record at another place is neither missing nor additional."""
    expected = [(b"o-2", b"shipped"), (b"o-1", b"paid"), (b"o-1", None)]
    lines = message_of(lambda: assert_records(filled.log("orders"), expected))
    assert 2 == len(lines)
    assert lines[1].startswith("out of order: offset ")


def test_assert_records_shows_other_headers_and_timestamps(filled: LogManager) -> None:
    """A different header or timestamp is a different record."""
    expected = [RECORDS[0], Record(key=b"o-2", value=b"shipped", timestamp_ms=MS), RECORDS[2]]
    assert [
        f"missing:      record 1 of the expected, key=b'o-2' value=b'shipped' timestamp={MS}",
        f"additional:   offset 1, key=b'o-2' value=b'shipped' timestamp={MS + 1}",
    ] == message_of(lambda: assert_records(filled.log("orders"), expected))[1:]
    without_headers = [Record(key=each.key, value=each.value) for each in RECORDS]
    lines = message_of(lambda: assert_records(filled.log("orders"), without_headers))
    assert "additional:   offset 0, key=b'o-1' value=b'paid' headers=(('by', b'card'),)" in lines


def test_assert_records_limits_a_long_difference(manager: LogManager) -> None:
    """The message counts the rest, and cuts a long value."""
    log = manager.log("orders")
    log.append([Record(value=b"%03d" % number * 100) for number in range(20)])
    lines = message_of(lambda: assert_records(log, [b"v"]))
    assert "... and 11 other differences" == lines[-1]
    assert lines[2].endswith("... (300 bytes)")


def test_assert_records_from_an_offset(filled: LogManager) -> None:
    """Earlier records are not compared."""
    assert_records(filled.log("orders"), [None], start=2)


def test_assert_records_of_several_kinds_raises(filled: LogManager) -> None:
    """The types are in the message."""
    mixed: list[bytes | Record] = [b"paid", RECORDS[1]]
    with pytest.raises(TypeError, match=r"or all Record, got Record, bytes"):
        assert_records(filled.log("orders"), mixed)  # type: ignore[arg-type]


def test_assert_topic_records_ignores_the_partitions(manager: LogManager) -> None:
    """The difference has partition and offset of an additional record."""
    with manager.producer() as producer:
        for number in range(10):
            producer.send("orders", b"v", key=b"%d" % number)
    expected = [(b"%d" % number, b"v") for number in reversed(range(10))]
    assert_topic_records(manager, "orders", expected)
    lines = message_of(lambda: assert_topic_records(manager, "orders", expected[1:]))
    assert "orders has other records: 9 expected, 10 found with read_uncommitted" == lines[0]
    assert lines[1].startswith("additional:   orders-")
    assert lines[1].endswith("key=b'9' value=b'v'")


def test_assert_offsets_shows_all_that_differ(filled: LogManager) -> None:
    """Offsets that are not given are not compared."""
    log = filled.log("orders")
    assert_offsets(log, start=0, end=3, durable=0, high_watermark=3, last_stable=3)
    assert ["orders-0: log end offset must be 4, got 3; durable offset must be 3, got 0"] == (
        message_of(lambda: assert_offsets(log, start=0, end=4, durable=3))
    )


def test_assert_committed_shows_the_position(filled: LogManager) -> None:
    """The position None is that of a group without commits."""
    assert_committed(filled, "billing", "orders", 0, None)
    with filled.consumer("billing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("orders")
        consumer.poll(0)
        consumer.commit()
    assert_committed(filled, "billing", "orders", 0, 3)
    assert ["group 'billing': committed offset of orders-0 must be 2, got 3"] == message_of(
        lambda: assert_committed(filled, "billing", "orders", 0, 2)
    )


def test_assert_transaction_follows_its_states(
    managers: ManagerFactory, manager: LogManager
) -> None:
    """Ongoing with its partitions, then committed or aborted."""
    assert ["transaction of 't' must be Ongoing, got no transaction"] == message_of(
        lambda: assert_transaction(manager, "t", "Ongoing")
    )
    with manager.producer(transactional_id="t") as producer:
        producer.begin_transaction()
        producer.send("orders", b"1", partition=1)
        producer.flush()
        assert_transaction(manager, "t", "Ongoing", ("orders", 1))
        assert ["transaction of 't' must have the partitions orders-0, got orders-1"] == message_of(
            lambda: assert_transaction(manager, "t", "Ongoing", ("orders", 0))
        )
        producer.commit_transaction()
        assert_transaction(manager, "t", "CompleteCommit")
        producer.begin_transaction()
        producer.send("orders", b"2", partition=1)
        producer.flush()
        producer.abort_transaction()
        assert ["transaction of 't' must be CompleteCommit, got CompleteAbort"] == message_of(
            lambda: assert_transaction(manager, "t", "CompleteCommit")
        )
    assert_records(manager.log("orders", 1), [b"1"], isolation="read_committed")
    assert_records(manager.log("orders", 1), [b"1", b"2"])


def test_difference_of_many_equal_records_is_found_fast() -> None:
    """Once the time was quadratic: a minute for these."""
    expected = expected_fields([b"x"] * 20_000)
    found = expected_fields([b"x"] * 15_000 + [b"y"] + [b"x"] * 4_999)
    assert [
        "missing:      record 15000 of the expected, value=b'x'",
        "additional:   15000, value=b'y'",
    ] == describe_difference(expected, found, range(20_000))
