"""Life of a manager: topics created, written, closed, reopened and deleted."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalog import (
    ConfigError,
    ForkedLogError,
    InvalidTopicError,
    Log,
    LogClosedError,
    LogConfig,
    LogLockedError,
    LogManager,
    LogOfflineError,
    ManagerConfig,
    Record,
    TopicConfigs,
    TopicExistsError,
    TopicPartition,
    UnknownTopicOrPartitionError,
    open_log,
)
from kafkalog.files.names import (
    CLEANER_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from kafkalog.files.posix import PosixFileSystem
from kafkalog.state.meta_properties import read_meta_properties
from kafkalog.state.partition_metadata import read_partition_metadata
from tests.support.managers import (
    append_texts,
    checkpointed,
    fail_directory,
    has_marker,
    manual_manager,
    scheduler_of,
    values,
)
from tests.support.simulated_disk import SimulatedDisk


def test_reopened_manager_has_topics_records_and_settings(tmp_path: Path) -> None:
    """No log has to be recovered."""
    with manual_manager(tmp_path / "a") as manager:
        manager.create_topic("orders", 2, {"retention.ms": "-1"})
        append_texts(manager, "orders", 1, "one", "two")
    with manual_manager(tmp_path / "a") as manager:
        assert {"orders": (0, 1)} == manager.topics()
        assert ["one", "two"] == values(manager, "orders", 1)
        log = manager.log("orders", 1)
        assert log.recovery_report.clean
        assert -1 == log.config.retention_ms
        assert 2 == log.log_end_offset == log.durable_offset


def test_log_is_opened_by_the_first_call_and_shared(tmp_path: Path) -> None:
    """No log is open before the first call, nor after a clean start."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders", 3)
        assert 0 == manager.health().directories[0].open_count
        assert manager.log("orders", 1) is manager.log("orders", 1)
        assert 1 == manager.health().directories[0].open_count
        assert 3 == manager.health().directories[0].partition_count
    with manual_manager(tmp_path) as manager:
        assert 0 == manager.health().directories[0].open_count


def test_log_closed_by_a_caller_is_reopened_by_the_next_call(tmp_path: Path) -> None:
    """A `with` block of one caller does not affect the others."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        with manager.log("orders") as log:
            log.append([Record(value=b"one")])
        assert log.is_closed
        assert ["one"] == values(manager, "orders")
        assert manager.log("orders").recovery_report.clean


def test_new_partition_goes_to_the_directory_with_the_fewest(tmp_path: Path) -> None:
    """With equal counts, in the order of the directories."""
    first, second = tmp_path / "first", tmp_path / "second"
    with manual_manager(first) as manager:
        manager.create_topic("old", 2)
    with manual_manager(first, second) as manager:
        manager.create_topic("new", 4)
        places = [manager.directory_of("new", number).name for number in range(4)]
        assert ["second", "second", "first", "second"] == places


def test_data_directory_has_the_checkpoints_and_marker_of_a_broker(tmp_path: Path) -> None:
    """The start creates the files; the close writes the end of every log."""
    names = (
        RECOVERY_POINT_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        HIGH_WATERMARK_CHECKPOINT,
        CLEANER_OFFSET_CHECKPOINT,
    )
    manager = manual_manager(tmp_path)
    assert all((tmp_path / name).read_bytes() == b"0\n0\n" for name in names)
    manager.create_topic("orders", 2)
    append_texts(manager, "orders", 0, "one", "two")
    assert not has_marker(tmp_path)
    manager.close()
    assert has_marker(tmp_path)
    assert {"orders-0": 2, "orders-1": 0} == checkpointed(tmp_path, RECOVERY_POINT_CHECKPOINT)
    assert {"orders-0": 2} == checkpointed(tmp_path, HIGH_WATERMARK_CHECKPOINT)
    assert {} == checkpointed(tmp_path, LOG_START_OFFSET_CHECKPOINT)
    assert {} == checkpointed(tmp_path, CLEANER_OFFSET_CHECKPOINT)


def test_partitions_of_a_topic_share_its_id(tmp_path: Path) -> None:
    """Also a partition that is created later; another topic has another id."""
    disk = PosixFileSystem()
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders", 2)
        manager.create_partition("orders", 2)
        manager.create_topic("payments")
    ids = {read_partition_metadata(disk, tmp_path / f"orders-{number}") for number in range(3)}
    assert 1 == len(ids)
    assert None not in ids
    assert read_partition_metadata(disk, tmp_path / "payments-0") not in ids


def test_directories_share_a_cluster_id_and_have_different_ids(tmp_path: Path) -> None:
    """A second directory joins the cluster of the first; generated ids are kept."""
    disk = PosixFileSystem()
    first, second = tmp_path / "first", tmp_path / "second"
    manual_manager(first, node_id=7).close()
    before = read_meta_properties(disk, first)
    with manual_manager(first, second) as manager:
        assert before is not None
        assert before.cluster_id == manager.cluster_id
        assert 7 == manager.node_id
    joined = read_meta_properties(disk, second)
    assert joined is not None
    assert (1, before.cluster_id, 7) == (joined.version, joined.cluster_id, joined.node_id)
    assert before.directory_id not in (None, joined.directory_id)
    assert before == read_meta_properties(disk, first)


@pytest.mark.parametrize("arguments", [{"cluster_id": "AAAAAAAAAAAAAAAAAAAAAA"}, {"node_id": 2}])
def test_directory_of_another_cluster_or_node_is_refused(
    tmp_path: Path, arguments: dict[str, Any]
) -> None:
    """The refusal releases the lock of the directory."""
    manual_manager(tmp_path, node_id=1).close()
    with pytest.raises(ConfigError, match=r"meta\.properties|cluster\.id|node\.id"):
        manual_manager(tmp_path, **arguments)
    manual_manager(tmp_path).close()
    assert has_marker(tmp_path)


def test_directory_and_its_copy_are_refused(tmp_path: Path) -> None:
    """Two directories with one id are a directory and its copy."""
    first, second = tmp_path / "first", tmp_path / "second"
    manual_manager(first).close()
    second.mkdir()
    (second / "meta.properties").write_bytes((first / "meta.properties").read_bytes())
    with pytest.raises(ConfigError, match=r"directory\.id"):
        manual_manager(first, second)


def test_meta_properties_of_version_0_are_read_and_kept(tmp_path: Path) -> None:
    """A directory of a ZooKeeper broker gets an id; nothing else is changed."""
    (tmp_path / "meta.properties").write_text("#\n#\nversion=0\nbroker.id=3\ncluster.id=abc\n")
    with manual_manager(tmp_path) as manager:
        assert ("abc", 3) == (manager.cluster_id, manager.node_id)
    kept = read_meta_properties(PosixFileSystem(), tmp_path)
    assert kept is not None
    assert (0, "abc", 3) == (kept.version, kept.cluster_id, kept.node_id)
    assert kept.directory_id is not None


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "x" * 250, "__cluster_metadata"])
def test_create_topic_illegal_name_is_refused(tmp_path: Path, topic: str) -> None:
    """No partition is created."""
    with manual_manager(tmp_path) as manager:
        with pytest.raises(InvalidTopicError):
            manager.create_topic(topic)
        assert {} == manager.topics()


def test_create_topic_colliding_name_is_refused(tmp_path: Path) -> None:
    """'.' counts as '_'; the same name is another error."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("a.b")
        with pytest.raises(InvalidTopicError, match="collides"):
            manager.create_topic("a_b")
        with pytest.raises(TopicExistsError):
            manager.create_topic("a.b")
        with pytest.raises(TopicExistsError):
            manager.create_partition("a.b", 0)


def test_unknown_partition_is_refused(tmp_path: Path) -> None:
    """By every method."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        for call in (
            lambda: manager.log("orders", 1),
            lambda: manager.log("payments"),
            lambda: manager.delete_partition("orders", 1),
            lambda: manager.delete_topic("payments"),
            lambda: manager.reconfigure("payments", {}),
            lambda: manager.directory_of("payments", 0),
        ):
            with pytest.raises(UnknownTopicOrPartitionError):
                call()


def test_delete_topic_closes_its_logs_and_removes_files_later(tmp_path: Path) -> None:
    """Its settings are removed too; bytes that were read stay valid."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders", 2, {"retention.ms": "5"})
        append_texts(manager, "orders", 0, "one")
        held = manager.log("orders")
        data = held.read(0).data
        manager.delete_topic("orders")
        assert {} == manager.topics()
        assert held.is_closed
        assert 71 == len(bytes(data))
        deleted = [path.name for path in tmp_path.iterdir() if path.name.endswith("-delete")]
        assert 2 == len(deleted)
        assert {} == checkpointed(tmp_path, RECOVERY_POINT_CHECKPOINT)
        manager.create_topic("orders")
        assert 604_800_000 == manager.log("orders").config.retention_ms
        assert [] == values(manager, "orders")
        scheduler_of(manager).advance(1_000)
        assert not any((tmp_path / name).exists() for name in deleted)


def test_deleted_directory_is_removed_after_the_next_start(tmp_path: Path) -> None:
    """After the same delay; until then a topic of its name may exist."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        manager.delete_topic("orders")
    assert 1 == len(list(tmp_path.glob("*-delete")))
    with manual_manager(tmp_path) as manager:
        assert {} == manager.topics()
        scheduler_of(manager).advance(999)
        assert 1 == len(list(tmp_path.glob("*-delete")))
        scheduler_of(manager).advance(1)
        assert [] == list(tmp_path.glob("*-delete"))


def test_delete_topic_of_the_longest_name_succeeds(tmp_path: Path) -> None:
    """The name of the deleted directory is cut to the limit of the file system."""
    topic = "x" * 249
    with manual_manager(tmp_path) as manager:
        manager.create_topic(topic, 2)
        manager.delete_topic(topic)
        names = [path.name for path in tmp_path.glob("*-delete")]
        assert [255, 255] == [len(name) for name in names]
        scheduler_of(manager).advance(1_000)
        assert [] == list(tmp_path.glob("*-delete"))


def test_manager_locks_its_directories(tmp_path: Path) -> None:
    """Partitions that are not open are locked too; reading is allowed."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        append_texts(manager, "orders", 0, "one")
        with pytest.raises(LogLockedError):
            manual_manager(tmp_path)
        with pytest.raises(LogLockedError):
            open_log(tmp_path / "payments-0")
        with open_log(tmp_path / "orders-0", read_only=True) as log:
            assert 1 == log.log_end_offset
    with open_log(tmp_path / "orders-0") as log:
        assert log.recovery_report.clean
        with pytest.raises(LogLockedError):
            manual_manager(tmp_path)


def test_closed_manager_refuses_every_call(tmp_path: Path) -> None:
    """A second `close` does nothing."""
    manager = manual_manager(tmp_path)
    manager.create_topic("orders")
    log = manager.log("orders")
    manager.close()
    manager.close()
    assert log.is_closed
    for call in (
        lambda: manager.log("orders"),
        lambda: manager.create_topic("payments"),
        lambda: manager.delete_topic("orders"),
        lambda: manager.bring_online(tmp_path),
    ):
        with pytest.raises(LogClosedError):
            call()


def test_reconfigure_applies_to_open_and_later_logs(tmp_path: Path) -> None:
    """Also after a restart."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders", 2, {"retention.ms": "7"})
        log = manager.log("orders", 0)
        change = manager.reconfigure("orders", {"retention.bytes": "9", "retention.ms": None})
        assert {"retention.bytes", "retention.ms"} == set(change.at_once)
        for each in (log, manager.log("orders", 1)):
            assert (9, 604_800_000) == (each.config.retention_bytes, each.config.retention_ms)
        with pytest.raises(ConfigError):
            manager.reconfigure("orders", {"retention.byte": "9"})
    with manual_manager(tmp_path) as manager:
        assert 9 == manager.log("orders").config.retention_bytes
        assert {"retention.bytes": "9"} == manager.topic_configs.overrides_of("orders")


def test_topic_configs_argument_replaces_saved_overrides(tmp_path: Path) -> None:
    """For the topics that it names; the others keep theirs."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("one", 1, {"retention.ms": "1", "retention.bytes": "2"})
        manager.create_topic("two", 1, {"retention.ms": "2"})
    configs = TopicConfigs(LogConfig(segment_bytes=700), {"one": {"retention.ms": "11"}})
    config = ManagerConfig(log=configs.defaults)
    for topic_configs in (configs, None):
        with manual_manager(tmp_path, config=config, topic_configs=topic_configs) as manager:
            assert {"retention.ms": "11"} == manager.topic_configs.overrides_of("one")
            assert 2 == manager.log("two").config.retention_ms
            assert 700 == manager.log("two").config.segment_bytes
    with pytest.raises(ConfigError, match="defaults"):
        manual_manager(tmp_path, config=ManagerConfig(), topic_configs=configs)


def test_one_directory_twice_is_refused(tmp_path: Path) -> None:
    """Also by a link; and a manager needs at least one directory."""
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "a").mkdir()
    with pytest.raises(ConfigError, match="the same data directory"):
        manual_manager(tmp_path / "a", tmp_path / "link")
    with pytest.raises(ConfigError, match=r"log\.dirs"):
        manual_manager()
    config = ManagerConfig(log_dirs=(str(tmp_path / "a"),))
    with manual_manager(config=config) as manager:
        assert [tmp_path / "a"] == [each.path for each in manager.health().directories]


def test_partitions_are_listed_in_order(tmp_path: Path) -> None:
    """By topic, then by number."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("b", 11)
        manager.create_topic("a")
        assert TopicPartition("a", 0) == manager.partitions()[0]
        assert tuple(range(11)) == manager.topics()["b"]
        assert [0, 1, 10] == [
            each.partition for each in manager.partitions() if each[1] in (0, 1, 10)
        ][1:]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_refuses_changes_and_closes_nothing(tmp_path: Path) -> None:
    """The logs of the parent stay open."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        append_texts(manager, "orders", 0, "one")
        child = os.fork()
        if not child:
            refused = 0
            try:
                manager.create_topic("payments")
            except ForkedLogError:
                refused += 1
            try:
                append_texts(manager, "orders", 0, "two")
            except ForkedLogError:
                refused += 1
            manager.close()
            os._exit(refused)
        assert 2 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert not has_marker(tmp_path)
        append_texts(manager, "orders", 0, "two")
        assert ["one", "two"] == values(manager, "orders")
    assert has_marker(tmp_path)


def test_log_opened_during_close_is_refused_or_closed(tmp_path: Path) -> None:
    """No log outlives its manager."""
    for _ in range(5):
        manager = manual_manager(tmp_path)
        if not manager.topics():
            manager.create_topic("orders", 20)
        opened: list[Log] = []
        start = threading.Barrier(2)
        thread = threading.Thread(target=ask_for_all, args=(manager, opened, start))
        thread.start()
        start.wait(timeout=30)
        manager.close()
        thread.join(timeout=30)
        assert all(log.is_closed for log in opened)
        assert has_marker(tmp_path)


def ask_for_all(manager: LogManager, opened: list[Log], start: threading.Barrier) -> None:
    """Open all logs of a topic until the manager is closed."""
    start.wait(timeout=30)
    with contextlib.suppress(LogClosedError):
        opened.extend(manager.log("orders", number) for number in range(20))


def test_create_topic_uses_the_directory_of_the_caller() -> None:
    """PAR-8: it must be an online directory of this manager."""
    disk = SimulatedDisk()
    a, b = Path("/disks/a"), Path("/disks/b")
    with manual_manager(a, b, filesystem=disk) as manager:
        manager.create_topic("orders", 3, directory=b)
        manager.create_partition("orders", 3, directory=str(b) + "/")
        assert {b} == {manager.directory_of("orders", number) for number in range(4)}
        with pytest.raises(ConfigError, match="not a data directory of this manager"):
            manager.create_topic("bills", directory=Path("/disks/c"))
        append_texts(manager, "orders", 0, "lost")
        fail_directory(disk, manager, "orders")
        with pytest.raises(LogOfflineError):
            manager.create_topic("bills", 2, directory=b)
        assert ["orders"] == list(manager.topics())
        manager.create_topic("bills", 2)
        assert a == manager.directory_of("bills", 1)


CLOSED_AT_THE_EXIT = """
import atexit, sys, threading, kafkalog
manager = kafkalog.LogManager(sys.argv[1:])
manager.create_topic("t", 4)
for number in range(4):
    manager.log("t", number).append([kafkalog.Record(value=b"x")])
atexit.register(manager.close)
"""


def test_manager_closed_at_the_exit_of_the_interpreter_is_closed_in_order(tmp_path: Path) -> None:
    """Python's thread pools end before functions of `atexit` run."""
    directories = [tmp_path / "a", tmp_path / "b"]
    command = [sys.executable, "-c", CLOSED_AT_THE_EXIT, *map(str, directories)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
    assert all(has_marker(each) for each in directories)
    with manual_manager(*directories) as manager:
        assert [["x"]] * 4 == [values(manager, "t", number) for number in range(4)]
