"""`get_many` and `offsets_for_timestamps` return what `get` and `offset_for_timestamp` return."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from kafkalog import Log, Record, open_log
from kafkalog.log.isolation import Isolation
from tests.support.golden import all_partitions, data_directory
from tests.support.golden_old import all_old_partitions, old_data_directory

PARTITIONS = [data_directory(name) / partition for name, partition in all_partitions()]
OLD = [old_data_directory(name) / partition for name, partition in all_old_partitions()]


def one_by_one(log: Log, times: list[int], isolation: Isolation) -> list[int]:
    """Look each time up separately."""
    found = [log.offset_for_timestamp(time, isolation=isolation) for time in times]
    return [-1 if each is None else each.offset for each in found]


def got(records: list[Record | None]) -> list[object]:
    """Return the fields in which two answers must be equal."""
    return [None if r is None else (r.offset, r.timestamp_ms, r.key, r.value) for r in records]


@pytest.mark.parametrize("directory", PARTITIONS[::2] + OLD[::4], ids=lambda path: path.name)
def test_many_lookups_of_a_brokers_directory_equal_single_lookups(directory: Path) -> None:
    """Every format, compressed, compacted, with transactions; in any order, and repeated."""
    random = Random(directory.name)
    with open_log(directory, read_only=True) as log:
        start, end = log.log_start_offset, log.log_end_offset
        offsets = [random.randint(start, end) for _ in range(25)]
        near = random.randint(start, end)
        offsets += range(near, min(near + 15, end))
        times = {record.timestamp_ms for record in log.records(offsets[0])}
        timestamps = [max(random.choice([*times, 0]) + random.randint(-1, 1), 0) for _ in range(12)]
        isolations: list[Isolation] = ["read_uncommitted", "read_committed"]
        for isolation in isolations:
            expected = [log.get(offset, isolation=isolation) for offset in offsets]
            found = log.get_many(np.array(offsets), isolation=isolation)
            assert got(expected) == got(found)
            found_offsets = log.offsets_for_timestamps(timestamps, isolation=isolation)
            assert one_by_one(log, timestamps, isolation) == found_offsets.tolist()
