"""Progress of a stream: positions of a consumer group, and lag."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

import kafkalog
from kafkalog import LogManager, Record, TopicPartition
from kafkalog.clients.internal_topics import partition_for
from kafkalog.spark.group_progress import GroupProgress
from kafkalog.spark.lag import StreamLag, lag_between, unread_bytes
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.stream_offsets import OffsetJson
from kafkalog.spark.stream_plan import StreamPlan

# The partition of the group "etl" in a broker.
NUMBER = partition_for("etl", 50)


def test_lag_is_the_difference_of_read_and_newest_offsets() -> None:
    """From text or parsed offsets; the lag of a new partition is its end."""
    read: OffsetJson = {"a": {"0": 5, "1": 7}, "#topic_ids": {"a": "x"}}
    newest: OffsetJson = {"a": {"0": 15, "1": 7, "2": 3}, "#topic_ids": {"a": "x"}}
    expected = StreamLag(3, 0, 10, 13 / 3, 13)
    assert expected == lag_between(read, newest)
    assert expected == lag_between(json.dumps(read), json.dumps(newest))
    assert StreamLag(0, 0, 0, 0.0, 0) == lag_between("{}", "null")
    # A topic that was created again may end below the read offset.
    assert 0 == lag_between({"a": {"0": 9}}, {"a": {"0": 2}}).total_offsets


def test_lag_in_bytes_is_estimated_by_segments(tmp_path: Path) -> None:
    """Half of the offsets are about half of the bytes."""
    with kafkalog.open_log(tmp_path / "a-0") as log:
        log.append([Record(value=b"v" * 100)] * 100)
    options = ReadOptions.parse({"path": str(tmp_path / "a-0")}, streaming=True)
    size = (tmp_path / "a-0" / "00000000000000000000.log").stat().st_size
    assert size // 2 == unread_bytes(options, '{"a": {"0": 50}}')
    assert size == unread_bytes(options, {})
    assert 0 == unread_bytes(options, {"a": {"0": 100}})


def test_published_group_positions_are_read_by_a_consumer(tmp_path: Path) -> None:
    """A later manager has the positions, and the settings of their topic."""
    with LogManager([tmp_path]) as manager:
        manager.create_topic("a", 2)
    progress = GroupProgress((str(tmp_path),), "etl")
    assert progress.publish({"a": {"0": 5, "1": 7}, "#topic_ids": {"a": "x"}})
    assert progress.publish({"a": {"0": 6, "1": 7}})
    with LogManager([tmp_path]) as manager:
        with manager.consumer("etl") as consumer:
            committed = [consumer.committed(TopicPartition("a", number)) for number in (0, 1)]
        assert "compact" == manager.log("__consumer_offsets", 0).config.cleanup_policy[0]
        # The second call writes only the changed position.
        assert 3 == manager.log("__consumer_offsets", NUMBER).log_end_offset
    assert [6, 7] == [position.offset for position in committed if position is not None]


def test_group_in_a_locked_directory_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The stream does not fail; positions are written when the lock is free."""
    progress = GroupProgress((str(tmp_path),), "etl")
    with LogManager([tmp_path]) as manager, caplog.at_level(logging.WARNING):
        manager.create_topic("a", 1)
        assert not progress.publish({"a": {"0": 1}})
        assert not progress.publish({"a": {"0": 2}})
    warnings = [each for each in caplog.records if "does not get its positions" in each.message]
    assert 1 == len(warnings)
    assert progress.publish({"a": {"0": 2}})


def test_group_of_one_partition_is_written_to_its_data_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A standalone log has no data directory, so nothing is written."""
    alone = tmp_path / "alone-0"
    with LogManager([tmp_path / "data"]) as manager, kafkalog.open_log(alone) as log:
        manager.create_topic("a", 1)
        for each in (log, manager.log("a")):
            each.append([Record(value=b"v")])
    within = tmp_path / "data" / "a-0"
    assert GroupProgress((str(within),), "etl").publish({"a": {"0": 1}})
    assert (tmp_path / "data" / "__consumer_offsets-0").is_dir()
    with caplog.at_level(logging.WARNING):
        assert not GroupProgress((str(alone),), "etl").publish({"alone": {"0": 1}})
    assert "must be in a data directory" in caplog.text
    assert [] == [path for path in (*within.iterdir(), *alone.iterdir()) if path.is_dir()]


def test_stream_publishes_for_the_group_of_its_options(tmp_path: Path) -> None:
    """`groupId` is the group whose positions a commit writes."""
    with LogManager([tmp_path]) as manager:
        manager.create_topic("a", 1)
    options = {"path": str(tmp_path), "groupId": "etl"}
    StreamPlan(ReadOptions.parse(options, streaming=True)).publish({"a": {"0": 3}})
    positions = tmp_path / f"__consumer_offsets-{NUMBER}"
    assert positions.is_dir()
    plain = ReadOptions.parse({"path": str(tmp_path)}, streaming=True)
    StreamPlan(plain).publish({"a": {"0": 4}})
    with kafkalog.open_log(positions, read_only=True) as log:
        assert 1 == log.log_end_offset
