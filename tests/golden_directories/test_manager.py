"""A manager on data directories that real brokers wrote: opened, closed, and unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import LogManager, ManagerConfig, RecoveryProgress
from kafkalog.files.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from tests.support import golden
from tests.support.managers import append_texts, checkpointed, has_marker, manual_manager, values

CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)


def records_of_a_broker(data_set: str) -> dict[tuple[str, int], int]:
    """Return the live partitions of a data set with their log ends."""
    ends = {}
    for name in golden.partitions(data_set):
        topic, _dash, number = name.rpartition("-")
        if topic != "__cluster_metadata" and number.isdigit():
            summary = golden.Manifest(data_set, name).summary
            ends[topic, int(number)] = summary.log_end_offset
    return ends


def test_manager_directory_closed_by_a_broker_keeps_its_logs(tmp_path: Path) -> None:
    """No log is written, leftovers are removed; the close writes checkpoints and the marker."""
    data = golden.copy_data_directory(golden.CLEAN, tmp_path / "data")
    logs = {n: h for n, h in golden.snapshot(data).items() if "/" in n}
    checkpoints = {name: checkpointed(data, name) for name in CHECKPOINTS}
    with manual_manager(data, config=ManagerConfig()) as manager:
        ends = records_of_a_broker(golden.CLEAN)
        assert set(ends) == {tuple(each) for each in manager.partitions()}
        for (topic, partition), end in ends.items():
            log = manager.log(topic, partition)
            assert log.recovery_report.clean
            assert end == log.log_end_offset
        assert 1224 == manager.log("deleted-records").log_start_offset
        meta = manager.cluster_id, manager.node_id
    kept = {n: h for n, h in golden.snapshot(data).items() if "/" in n}
    assert kept == {n: h for n, h in logs.items() if n in kept}
    assert {"deleted", "snapshot"} == {n.rpartition(".")[2] for n in logs if n not in kept}
    assert has_marker(data)
    for name in CHECKPOINTS:
        after = checkpointed(data, name)
        assert after == {k: v for k, v in checkpoints[name].items() if k in after}
        assert {k for k in checkpoints[name] if not k.startswith("__cluster")} == set(after)
    with manual_manager(data) as manager:
        assert meta == (manager.cluster_id, manager.node_id)


@pytest.mark.parametrize("thread_count", [1, 3])
def test_manager_directory_of_a_killed_broker_recovers_every_log(
    tmp_path: Path, thread_count: int
) -> None:
    """The setting gives the number of threads; `on_progress` is called for each partition."""
    data = golden.copy_data_directory(golden.UNCLEAN, tmp_path / "data")
    progress: list[RecoveryProgress] = []
    config = ManagerConfig(num_recovery_threads_per_data_dir=thread_count)
    with manual_manager(data, config=config, on_progress=progress.append) as manager:
        names = {each.topic_partition for each in progress}
        assert set(manager.partitions()) == names
        assert [(number, len(progress)) for number in range(1, len(progress) + 1)] == [
            (each.done_count, each.total_count) for each in progress
        ]
        assert {data} == {each.directory for each in progress}
        assert all(each.report is not None and each.error is None for each in progress)
        assert manager.health().is_healthy
        assert len(progress) == manager.health().directories[0].open_count
        points = checkpointed(data, RECOVERY_POINT_CHECKPOINT)
        for each in progress:
            assert each.report is not None
            assert not each.report.clean
            assert points[str(each.topic_partition)] == each.report.recovery_point
    assert has_marker(data)
    with manual_manager(data) as manager:
        for topic, partition in manager.partitions():
            assert manager.log(topic, partition).recovery_report.clean


def test_manager_append_continues_a_brokers_log(tmp_path: Path) -> None:
    """Appended records follow the records of the broker."""
    data = golden.copy_data_directory(golden.CLEAN, tmp_path / "data")
    end = records_of_a_broker(golden.CLEAN)["plain", 0]
    with manual_manager(data, config=ManagerConfig()) as manager:
        append_texts(manager, "plain", 0, "ours")
        assert end + 1 == manager.log("plain").log_end_offset
    with manual_manager(data, config=ManagerConfig()) as manager:
        assert "ours" == values(manager, "plain")[-1]


@pytest.mark.parametrize("data_set", [golden.CLEAN, golden.UNCLEAN])
def test_read_only_manager_changes_nothing_of_a_broker(data_set: str, tmp_path: Path) -> None:
    """Stopped in order or killed: everything is served, and every file stays as it is."""
    data = golden.copy_data_directory(data_set, tmp_path / "data")
    before = golden.snapshot(data)
    with LogManager(data, read_only=True) as manager:
        ends = records_of_a_broker(data_set)
        assert set(ends) == {tuple(each) for each in manager.partitions()}
        for (topic, partition), end in ends.items():
            assert end == manager.log(topic, partition).log_end_offset
            with manager.consumer(
                "group", auto_offset_reset="earliest", on_corrupt="skip"
            ) as consumer:
                consumer.assign([(topic, partition)])
                while consumer.poll(0, 10_000):
                    pass
    assert golden.snapshot(data) == before
