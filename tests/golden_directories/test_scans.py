"""Brokers' directories as columns: a scan gives the rows that `records` gives."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog import open_log
from tests.golden_directories.old_facts import PARTITIONS as OLD
from tests.golden_directories.old_facts import manifest_of
from tests.support.golden import CLEAN, UNCLEAN, Manifest, partitions
from tests.support.manual_time import ManualClock, ManualScheduler
from tests.support.scanning import rows_of_scan, slow_rows

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
DIRECTORIES = [
    *(
        Manifest(name, partition).directory
        for name in (CLEAN, UNCLEAN)
        for partition in partitions(name)
    ),
    *(manifest_of(broker, partition).directory for broker, partition in OLD),
]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", ["kafka-4.1", "kafka-4.1-unclean", "kafka-old"])
def test_scan_of_a_brokers_logs_equals_their_records(name: str, isolation: Any) -> None:
    """Transactions, compacted logs, every format and codec, damage of an unclean stop."""
    chosen = [directory for directory in DIRECTORIES if name in directory.parts]
    assert chosen
    for directory in chosen:
        clock = ManualClock()
        how: dict[str, Any] = {"isolation": isolation, "on_corrupt": "skip"}
        with open_log(
            directory, read_only=True, clock=clock, scheduler=ManualScheduler(clock)
        ) as log:
            expected = slow_rows(log, COLUMNS, **how)
            found = rows_of_scan(log.scan(columns=COLUMNS, header_key_type="utf8", **how))
            assert expected == found, directory
