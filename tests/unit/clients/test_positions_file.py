"""Positions of a consumer in a file of its program."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import (
    CommittedOffset,
    ConfigError,
    Consumer,
    CorruptStateError,
    DiskFullError,
    LogLockedError,
    LogManager,
    ReadOnlyLogError,
    Record,
    TopicPartition,
)
from tests.support.simulated_disk import SimulatedDisk

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[LogManager]:
    """A manager that writes a topic of two partitions."""
    with LogManager(tmp_path / "data") as manager:
        manager.create_topic("orders", 2)
        manager.log("orders", 0).append([Record(value=b"%d" % number) for number in range(5)])
        yield manager


@pytest.fixture
def reader(writer: LogManager, tmp_path: Path) -> Iterator[LogManager]:
    """A read-only manager of the same directory."""
    assert not writer.is_closed
    with LogManager(tmp_path / "data", read_only=True) as manager:
        yield manager


def consumer_of(manager: LogManager, file: Path | None, group: str = "group") -> Consumer:
    """Return a consumer of the topic, with its positions in a file."""
    made = manager.consumer(
        group, positions_file=file, auto_offset_reset="earliest", poll_interval_ms=1
    )
    made.subscribe("orders")
    return made


def numbers(consumer: Consumer) -> list[int]:
    """Return the numbers that a poll returns."""
    return [int(each.value or b"-1") for found in consumer.poll().values() for each in found]


def test_consumer_continues_at_the_positions_in_its_file(
    writer: LogManager, reader: LogManager, tmp_path: Path
) -> None:
    """Metadata and epochs are kept; the directories have no positions."""
    file = tmp_path / "positions"
    with consumer_of(reader, file) as consumer:
        assert numbers(consumer) == [0, 1, 2, 3, 4]
        assert not file.exists()
        consumer.commit({FIRST: CommittedOffset(3, "a text - 100 %\n\u00e9", 7, 1234), SECOND: 0})
        assert consumer.committed(FIRST) == CommittedOffset(3, "a text - 100 %\n\u00e9", 7, 1234)
    with consumer_of(reader, file) as consumer:
        assert consumer.committed(FIRST) == CommittedOffset(3, "a text - 100 %\n\u00e9", 7, 1234)
        assert numbers(consumer) == [3, 4]
        consumer.commit({FIRST: CommittedOffset(5, "-")})
        committed = consumer.committed(FIRST)
        assert committed is not None
        assert (committed.offset, committed.metadata) == (5, "-")
    assert "__consumer_offsets" not in writer.topics()
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["positions"]


def test_first_positions_are_those_of_the_group(
    writer: LogManager, reader: LogManager, tmp_path: Path
) -> None:
    """A partition that the file does not name, or a consumer without a file."""
    with writer.consumer("group") as consumer:
        consumer.commit({FIRST: 2})
    for file in (None, tmp_path / "positions"):
        with consumer_of(reader, file) as consumer:
            assert numbers(consumer) == [2, 3, 4]
    with writer.consumer("group") as consumer:
        consumer.commit({FIRST: 4})
    with consumer_of(reader, tmp_path / "positions") as consumer:
        assert numbers(consumer) == [4]
        consumer.commit({FIRST: 1})
    with consumer_of(reader, tmp_path / "positions") as consumer:
        assert numbers(consumer) == [1, 2, 3, 4]
        consumer.commit({FIRST: None})
        assert consumer.committed(FIRST) is None
    with consumer_of(reader, tmp_path / "positions") as consumer:
        # Removed, although the directories have one.
        assert numbers(consumer) == [0, 1, 2, 3, 4]
    with consumer_of(reader, None) as consumer:
        assert numbers(consumer) == [4]


def test_commit_without_a_file_is_refused(reader: LogManager) -> None:
    """Nothing is written to a live directory; automatic commits are refused at once."""
    with consumer_of(reader, None) as consumer:
        numbers(consumer)
        with pytest.raises(ReadOnlyLogError, match="positions_file"):
            consumer.commit()
    with pytest.raises(ReadOnlyLogError, match="positions_file"):
        reader.consumer("group", enable_auto_commit=True)
    assert reader.topics() == {"orders": (0, 1)}


def test_automatic_commits_go_to_the_file(reader: LogManager, tmp_path: Path) -> None:
    """At the close, too."""
    file = tmp_path / "positions"
    with reader.consumer(
        "group", positions_file=file, enable_auto_commit=True, auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe("orders")
        assert len(numbers(consumer)) == 5
    with consumer_of(reader, file) as consumer:
        assert numbers(consumer) == []


def test_position_of_a_topic_that_was_made_again_is_ignored(
    writer: LogManager, reader: LogManager, tmp_path: Path
) -> None:
    """The topic id is in the file. A running consumer reads from the beginning, and reports it."""
    file = tmp_path / "positions"
    with consumer_of(reader, file) as running:
        assert len(numbers(running)) == 5
        running.commit()
        writer.delete_topic("orders")
        writer.create_topic("orders", 2)
        writer.log("orders", 0).append([Record(value=b"%d" % number) for number in range(10, 18)])
        time.sleep(0.01)
        assert numbers(running) == list(range(10, 18))
        assert [(5, 0)] == [(each.requested_offset, each.resumed_offset) for each in running.lost]
    with consumer_of(reader, file) as consumer:
        assert numbers(consumer) == list(range(10, 18))
        consumer.commit()
    with consumer_of(reader, file) as consumer:
        assert numbers(consumer) == []


def test_file_of_a_writing_manager(writer: LogManager, tmp_path: Path) -> None:
    """Its consumers may have positions of their own, too."""
    with consumer_of(writer, tmp_path / "positions") as consumer:
        assert len(numbers(consumer)) == 5
        consumer.commit()
    with consumer_of(writer, tmp_path / "positions") as consumer:
        assert numbers(consumer) == []
    with consumer_of(writer, None) as consumer:
        assert len(numbers(consumer)) == 5


def test_damaged_file_is_an_error(reader: LogManager, tmp_path: Path) -> None:
    """Any byte that is lost or changed; the error has the remedy."""
    file = tmp_path / "positions"
    with consumer_of(reader, file) as consumer:
        consumer.commit({FIRST: 3, SECOND: None})
    data = file.read_bytes()
    for position in range(0, len(data), 5):
        for damaged in (
            data[:position],
            data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :],
        ):
            file.write_bytes(damaged)
            with pytest.raises(CorruptStateError, match="remove the file"):
                consumer_of(reader, file)
    file.write_bytes(data)
    with consumer_of(reader, file) as consumer:
        assert numbers(consumer) == [3, 4]


@pytest.mark.parametrize(
    "line", ["orders 0 x - 1 - -", "orders 0", "", "orders 0 1 - 1 - - more", "bad"]
)
def test_odd_line_with_a_right_sum_is_an_error(
    reader: LogManager, tmp_path: Path, line: str
) -> None:
    """As written by another version."""
    from kafkalog._core import crc32c

    body = f"kafkalog positions 1\ngroup group\n{line}\n".encode()
    (tmp_path / "positions").write_bytes(body + b"sum %08x\n" % crc32c.value(body))
    with pytest.raises(CorruptStateError, match="must have 7 values"):
        consumer_of(reader, tmp_path / "positions")


def test_file_belongs_to_one_group_and_one_consumer(reader: LogManager, tmp_path: Path) -> None:
    """Another group is refused, and a commit over another consumer's."""
    file = tmp_path / "positions"
    with consumer_of(reader, file) as first, consumer_of(reader, file) as second:
        first.commit({FIRST: 1})
        first.commit({FIRST: 2})
        with pytest.raises(LogLockedError, match="another consumer"):
            second.commit({FIRST: 5})
        first.commit({FIRST: 3})
    with pytest.raises(ConfigError, match="group 'other'"):
        consumer_of(reader, file, "other")
    with pytest.raises(ValueError, match="group must be named"):
        consumer_of(reader, file, "")
    with consumer_of(reader, file) as consumer:
        assert numbers(consumer) == [3, 4]


@pytest.mark.parametrize("name", ["positions", "orders-0/positions", "../data/positions"])
def test_file_in_a_data_directory_is_refused(reader: LogManager, tmp_path: Path, name: str) -> None:
    """Nothing is created there."""
    with pytest.raises(ConfigError, match="outside of the data directories"):
        consumer_of(reader, tmp_path / "data" / name)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(ConfigError, match="outside of the data directories"):
        consumer_of(reader, tmp_path / "link" / name)


def test_full_disk_keeps_the_old_positions() -> None:
    """A commit that fails can be repeated."""
    disk = SimulatedDisk()
    data, file = Path("/data"), Path("/own/positions")
    disk.make_directory(file.parent)
    with LogManager(data, filesystem=disk) as writer:
        writer.create_topic("orders", 2)
        writer.log("orders", 0).append([Record(value=b"%d" % number) for number in range(5)])
        with LogManager(data, filesystem=disk, read_only=True) as reader:
            with consumer_of(reader, file) as consumer:
                consumer.commit({FIRST: 1})
                disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}), suffix="positions.tmp")
                with pytest.raises(DiskFullError):
                    consumer.commit({FIRST: 2})
                assert consumer.committed(FIRST) is not None
            with consumer_of(reader, file) as consumer:
                assert numbers(consumer) == [1, 2, 3, 4]
                consumer.commit({FIRST: 4})
            with consumer_of(reader, file) as consumer:
                assert numbers(consumer) == [4]


COMMITTING = """
import sys
from kafkalog import LogManager, TopicPartition
with LogManager(sys.argv[1], read_only=True) as manager:
    consumer = manager.consumer("group", positions_file=sys.argv[2])
    found = consumer.committed(TopicPartition("orders", 0))
    offset = 0 if found is None else found.offset
    while True:
        offset += 1
        consumer.commit({TopicPartition("orders", 0): offset, TopicPartition("orders", 1): offset})
        print(offset, flush=True)
"""


def test_positions_survive_kills(reader: LogManager, tmp_path: Path) -> None:
    """After each kill the file has the last commit that returned, or the next commit."""
    file = tmp_path / "positions"
    for _round in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", COMMITTING, str(tmp_path / "data"), str(file)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        ) as process:
            assert process.stdout is not None
            printed = [process.stdout.readline() for _line in range(5)]
            process.send_signal(signal.SIGKILL)
            printed += process.stdout.readlines()
        last = int(printed[-1])
        with consumer_of(reader, file) as consumer:
            first, second = consumer.committed(FIRST), consumer.committed(SECOND)
            assert first is not None
            assert first == second
            assert first.offset in (last, last + 1)
