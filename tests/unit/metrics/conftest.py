"""A manager with records, reads and a group, for the adapters of its metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import LogManager
from tests.support.managers import ONE_PARTITION, append_texts, manual_manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[LogManager]:
    """A manager with a topic of two partitions and a group that lags."""
    with manual_manager(tmp_path, config=ONE_PARTITION) as opened:
        opened.create_topic("orders", 2)
        append_texts(opened, "orders", 1, "one", "two", "three")
        opened.flush()
        group = 'a "group"\\'
        with opened.consumer(group, max_poll_records=2, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            consumer.poll(0)
            consumer.commit()
        yield opened
