"""Tests that a cleaning does as its plan and its explanations predict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kafkalog import CleanerConfig, Log, compact_log, explain_compaction, plan_compaction
from tests.support.cleaning_cases import DirtyLog, dirty_logs
from tests.support.cleaning_logs import NOW_MS, laid_out
from tests.support.golden import copy_tree, data_directory
from tests.support.golden_old import old_data_directory
from tests.support.logs import manual_log
from tests.support.manual_time import ManualClock
from tests.support.reference_conversion import decode_run

CONFIG = CleanerConfig(io_buffer_load_factor=1.0)


def offsets_of(log: Log, *, with_control: bool) -> set[int]:
    """Return the offsets at which there are records."""
    return {
        record.offset
        for batch in log.batches()
        for plain in decode_run(bytes(batch.data))
        if with_control or not plain.is_control
        for record in plain.records
    }


def check_cleaning(log: Log, offsets: list[int], memory: int, *, include_active: bool) -> None:
    """Plan, explain, clean, and compare."""
    options: dict[str, Any] = {
        "config": CONFIG,
        "memory_bytes": memory,
        "include_active": include_active,
    }
    plan = plan_compaction(log, **options)
    explained = {offset: explain_compaction(log, offset, **options) for offset in offsets}
    # A later pass removes the marker of a transaction that lost all records in earlier passes.
    in_one = plan.passes == 1
    before = offsets_of(log, with_control=in_one)
    ignored = offsets_of(log, with_control=True) - before
    cleaning = compact_log(log, **options)
    after = offsets_of(log, with_control=in_one)
    assert (plan.begins.offset, plan.end_offset) == (cleaning.first_dirty, cleaning.end_offset)
    # The number of passes depends on hashes, which differ each time.
    assert in_one is (cleaning.passes <= 1)
    for offset, found in explained.items():
        if offset not in ignored:
            expected = "is not there"
            if offset in before:
                expected = "stays" if offset in after else "goes"
            assert expected == found.fate, found
    gone = plan.statistics.records_read - plan.statistics.records_kept
    if not in_one:
        gone -= plan.statistics.control_dropped
    assert gone == len(before - after)
    if in_one:
        assert plan.statistics == cleaning.statistics
        sizes = {each.base_offset: each.size_bytes for each in log.segments()}
        assert [each.bytes_after for each in plan.groups] == [
            sizes[each.base_offset] for each in plan.groups
        ]


@settings(
    max_examples=6,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(log=dirty_logs(), data=st.data())
def test_cleaning_agrees_with_plan_and_explanation(log: DirtyLog, data: st.DataObject) -> None:
    """Once, and again after the first, with memory for all keys or for few."""
    cuts = data.draw(st.sets(st.integers(1, len(log.batches))))
    memory = 24 * data.draw(st.sampled_from([2, 3, 1000]))
    include_active = data.draw(st.booleans())
    retention = data.draw(st.sampled_from([0, 300]))
    clock = ManualClock(NOW_MS)
    with laid_out(log, cuts, clock=clock, delete_retention_ms=retention) as opened:
        for _ in range(2):
            # A horizon of None is the current time, which is the past for a later pass.
            clock.advance(7)
            offsets = data.draw(st.lists(st.integers(0, log.end - 1), max_size=8))
            check_cleaning(opened, offsets, memory, include_active=include_active)


@pytest.mark.parametrize(
    ("data_set", "partition"),
    [
        ("kafka-4.1", "compact-txn-0"),
        ("kafka-4.1", "compact-zstd-horizon-0"),
        ("kafka-4.1", "compact-txn-horizon-0"),
        ("kafka-2.8", "compact-mixed-0"),
        ("kafka-2.8", "compact-v0-gzip-0"),
        ("kafka-2.8", "compact-v2-gone-0"),
    ],
)
def test_cleaning_of_a_brokers_log_agrees_with_plan_and_explanation(
    data_set: str, partition: str, tmp_path: Path
) -> None:
    """The active segment too, from an offset checkpoint of 0."""
    source = data_directory(data_set) if data_set == "kafka-4.1" else old_data_directory(data_set)
    directory = copy_tree(source / partition, tmp_path / partition)
    with manual_log(directory, cleanup_policy=("compact",), delete_retention_ms=0) as log:
        step = max(1, log.log_end_offset // 6)
        offsets = list(range(log.log_start_offset, log.log_end_offset, step))
        check_cleaning(log, offsets, 1 << 16, include_active=True)
