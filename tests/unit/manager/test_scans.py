"""Scan over the partitions of a manager: in order, each opened when it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import LogClosedError, TopicPartition, UnknownTopicOrPartitionError
from tests.support.managers import append_texts, manual_manager
from tests.support.scanning import rows_of_scan

COLUMNS = ["topic", "partition", "offset", "value"]


def test_scan_of_topics_has_all_their_partitions(tmp_path: Path) -> None:
    """All topics if none is named; a filter on partitions opens no other log."""
    with manual_manager(tmp_path / "data") as manager:
        manager.create_topic("orders", 2)
        manager.create_topic("bills", 1)
        for topic, partition in (("orders", 0), ("orders", 1), ("bills", 0)):
            append_texts(manager, topic, partition, f"{topic}-{partition}", "more")
        orders = [
            ("orders", partition, offset, value)
            for partition in range(2)
            for offset, value in enumerate([b"orders-%d" % partition, b"more"])
        ]
        bills = [("bills", 0, 0, b"bills-0"), ("bills", 0, 1, b"more")]
        assert orders == rows_of_scan(manager.scan(["orders"], columns=COLUMNS))[0]
        assert bills + orders == rows_of_scan(manager.scan(columns=COLUMNS))[0]
        part = manager.scan(columns=COLUMNS, filters=[("partition", "==", 1)])
        assert (TopicPartition("orders", 1),) == part.partitions
        assert orders[2:] == rows_of_scan(part)[0]


def test_scan_of_unknown_topic_or_closed_manager_is_refused(tmp_path: Path) -> None:
    """An unknown topic at once; a closed manager at the first read."""
    with manual_manager(tmp_path / "data") as manager:
        manager.create_topic("orders")
        with pytest.raises(UnknownTopicOrPartitionError):
            manager.scan(["orders", "others"])
        scan = manager.scan(["orders"])
    with pytest.raises(LogClosedError):
        list(scan)
    with pytest.raises(LogClosedError):
        manager.scan()
