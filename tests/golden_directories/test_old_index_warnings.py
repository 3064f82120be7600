"""Warnings about indexes are logged only if the disk may be faulty."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kafkalog import Log, open_log
from tests.support.golden_old import BROKERS, copy_old_data_directory, old_partitions


def look_up(log: Log) -> None:
    """Read every index."""
    for segment in log.segments():
        assert len(segment.offset_index.view) + len(segment.time_index.view) >= 0
        log.offset_for_timestamp(max(segment.max_timestamp, 1))
    for offset in range(log.log_start_offset, log.log_end_offset, 29):
        log.get(offset)


@pytest.mark.parametrize("broker", BROKERS)
def test_indexes_of_an_old_broker_log_no_warning(
    broker: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Old brokers write no time indexes, and v0 keeps no timestamps."""
    directory = copy_old_data_directory(broker, tmp_path / broker)
    caplog.set_level(logging.WARNING, logger="kafkalog")
    for name in old_partitions(broker):
        with open_log(directory / name) as log:
            look_up(log)
    assert [] == [record.getMessage() for record in caplog.records]
