"""Markers and data that a cleaning relies on are on the disk before it removes a record."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import AppendOrigin, LogConfig, compact_log
from tests.support.keyed_batches import keyed_batch, marker
from tests.support.logs import manual_log
from tests.support.manual_time import START_MS
from tests.support.simulated_disk import CrashChoice, SimulatedDisk

DIRECTORY = Path("/data/orders-0")
CONFIG = LogConfig(cleanup_policy=("compact",))


@pytest.mark.parametrize("abort", [True, False], ids=["abort", "commit"])
def test_cleaning_syncs_markers_before_it_removes_records(abort: bool) -> None:
    """PAR-9: aborted records, or values replaced by committed ones, survive without the marker."""
    disk = SimulatedDisk()
    disk.make_durable(DIRECTORY.parent)
    log = manual_log(DIRECTORY, config=CONFIG, filesystem=disk)
    log.append_batches(keyed_batch([(b"k", b"old")], START_MS))
    data = keyed_batch([(b"k", b"new")], START_MS, producer_id=7, sequence=0, transactional=True)
    log.append_batches(data, origin=AppendOrigin.CLIENT)
    log.roll()
    log.flush()
    log.append_batches(marker(7, 0, START_MS, abort=abort), origin=AppendOrigin.COORDINATOR)
    compact_log(log)
    expected = [b"old"] if abort else [b"new"]
    assert expected == [r.value for r in log.records(isolation="read_committed")]
    left = disk.crash(CrashChoice("nothing"))
    with manual_log(DIRECTORY, config=CONFIG, filesystem=left) as again:
        assert 3 == again.log_end_offset
        assert 3 == again.last_stable_offset
        assert expected == [r.value for r in again.records(isolation="read_committed")]
