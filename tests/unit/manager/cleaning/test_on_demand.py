"""Plans and explanations of a manager's compaction, compared with its result."""

from __future__ import annotations

import pytest

from kafkalog import CleanerConfig, LogClosedError, UnknownTopicOrPartitionError
from tests.unit.manager.cleaning.test_background import COMPACTED, fill, one_manager
from tests.unit.manager.cleaning.test_real_cleaner import PAIRS, content, put


def test_plan_and_explanations_equal_the_compaction_that_follows() -> None:
    """They use the settings of the manager and begin at the cleaner checkpoint."""
    memory = 2 << 20
    _disk, manager = one_manager(CleanerConfig(dedupe_buffer_size=memory))
    manager.create_topic("table", 1, COMPACTED)
    put(manager, *PAIRS)
    progress: list[int] = []
    plan = manager.plan_compaction(
        "table", include_active=True, on_progress=lambda done, total: progress.append(done)
    )
    fates = {
        offset: manager.explain_compaction("table", 0, offset, include_active=True)
        for offset in range(len(PAIRS))
    }
    cleaning = manager.compact("table", include_active=True)
    assert plan.statistics == cleaning.statistics
    assert memory == plan.memory_bytes
    assert progress
    kept = {offset for offset, *_ in content(manager)}
    assert kept == {offset for offset, found in fates.items() if found.fate == "stays"}
    put(manager, *PAIRS)
    after = manager.plan_compaction("table")
    assert ("checkpoint", cleaning.end_offset) == (after.begins.kind, after.begins.offset)
    manager.close()
    with pytest.raises(LogClosedError):
        manager.plan_compaction("table")


def test_plan_of_a_topic_without_compaction_is_made() -> None:
    """An unknown topic or partition is refused."""
    _disk, manager = one_manager()
    manager.create_topic("stream")
    fill(manager, "stream", 3)
    assert 0 == manager.plan_compaction("stream").statistics.superseded
    with pytest.raises(UnknownTopicOrPartitionError):
        manager.plan_compaction("absent")
    with pytest.raises(UnknownTopicOrPartitionError):
        manager.explain_compaction("stream", 1, 0)
    manager.close()
