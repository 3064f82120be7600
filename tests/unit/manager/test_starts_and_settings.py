"""Starts, settings and directories of managers, after Kafka's tests (PAR-21)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kafkalog import LogManager, UnknownTopicOrPartitionError
from kafkalog.manager import recovery
from tests.support.damage import log_file
from tests.support.logs import manual_log, numbered
from tests.support.managers import append_texts, has_marker, manual_manager, scheduler_of, values
from tests.support.producing import Client

TEXTS = [f"{number:200d}" for number in range(6)]


def test_interrupted_start_leaves_no_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PAR-21, 12: an interrupt during recovery is a crash for all partitions."""
    data = tmp_path / "data"
    with manual_manager(data) as manager:
        manager.create_topic("t", 3)
        for number in range(3):
            append_texts(manager, "t", number, *TEXTS)
    (data / ".kafka_cleanshutdown").unlink()
    count = []

    def interrupted(*arguments: object, **named: object) -> None:
        count.append(1)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kafkalog.manager.directory_group.recover", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manual_manager(data)
    assert [1] == count
    assert recovery.recover is not interrupted
    assert not has_marker(data)
    with manual_manager(data) as manager:
        for number in range(3):
            assert not manager.log("t", number).recovery_report.clean
            assert TEXTS == values(manager, "t", number)
    assert has_marker(data)


@pytest.mark.parametrize("are_defaults", [False, True])
def test_settings_changed_while_a_log_is_opened_apply(tmp_path: Path, are_defaults: bool) -> None:
    """PAR-21, 13: no thread gets a log with the old settings."""
    with LogManager([tmp_path / "data"]) as manager:
        for attempt in range(20):
            topic = f"t{attempt}"
            manager.create_topic(topic)
            value = str(10_000 + attempt)
            start = threading.Barrier(2)

            def change(topic: str = topic, value: str = value) -> None:
                start.wait()  # noqa: B023 - the thread ends within the round
                if are_defaults:
                    manager.reconfigure_defaults({"log.retention.bytes": value})
                else:
                    manager.reconfigure(topic, {"retention.bytes": value})

            thread = threading.Thread(target=change)
            thread.start()
            start.wait()
            log = manager.log(topic)
            thread.join()
            assert int(value) == manager.log(topic).config.retention_bytes
            assert log is manager.log(topic)


def test_late_transaction_is_reported_after_a_restart(tmp_path: Path) -> None:
    """PAR-21, 14: and not after a truncation of the transaction."""
    data = tmp_path / "data"
    with manual_manager(data) as manager:
        manager.create_topic("t")
        Client(7).send(manager.log("t"), transactional=True)
        Client(8).send(manager.log("t"), transactional=True)
        assert {} == manager.health().late_transactions
        time = scheduler_of(manager).clock
        time.advance(20 * 60_000 + 1)
        assert manager.health().late_transactions
    with manual_manager(data) as manager:
        scheduler_of(manager).clock.advance(20 * 60_000 + 1)
        manager.log("t")
        late = manager.health().late_transactions
        assert [2] == [len(each) for each in late.values()]
        manager.log("t").truncate_to(1)
        assert [7] == [each.producer_id for each in manager.log("t").list_transactions()]
        assert manager.health().late_transactions
        manager.log("t").truncate_fully_and_start_at(0)
        assert {} == manager.health().late_transactions


def test_directory_without_permission_is_offline_and_the_other_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PAR-21, 19: root ignores permissions, so the simulated disk raises EACCES."""
    from tests.support.simulated_disk import SimulatedDisk

    disk = SimulatedDisk()
    good, bad = Path("/disks/good"), Path("/disks/bad")
    with manual_manager(good, bad, filesystem=disk) as manager:
        manager.create_topic("t", directory=good)
        append_texts(manager, "t", 0, "x")
    disk.fail_at(1, 13, suffix="bad/.lock")
    with manual_manager(good, bad, filesystem=disk) as manager:
        assert [True, False] == [each.is_online for each in manager.health().directories]
        assert ["x"] == values(manager, "t")


def test_delete_topic_with_a_closed_log_removes_its_files(tmp_path: Path) -> None:
    """PAR-21: for a log that the caller closed."""
    data = tmp_path / "data"
    with manual_manager(data) as manager:
        manager.create_topic("t")
        append_texts(manager, "t", 0, "x")
        manager.log("t").close()
        manager.delete_topic("t")
        scheduler_of(manager).advance(2_000)
        assert {} == manager.topics()
        assert not [each for each in data.iterdir() if each.is_dir()]


def test_log_of_unknown_partition_creates_no_file(tmp_path: Path) -> None:
    """PAR-21: the call raises."""
    data = tmp_path / "data"
    with manual_manager(data) as manager:
        manager.create_topic("t")
        before = sorted(data.iterdir())
        for topic, partition in (("t", 1), ("u", 0)):
            with pytest.raises(UnknownTopicOrPartitionError):
                manager.log(topic, partition)
        assert before == sorted(data.iterdir())
        assert not log_file(data / "t-1").exists()


@pytest.mark.parametrize("is_filled", [False, True])
def test_directory_with_the_name_of_the_marker_is_not_a_marker(
    tmp_path: Path, is_filled: bool
) -> None:
    """HOST-14: managers start and stop with it, and it does not count as a clean stop."""
    data = tmp_path / "data"
    with manual_manager(data) as manager:
        manager.create_topic("t", 1)
        append_texts(manager, "t", 0, *TEXTS[:3])
    marker = data / ".kafka_cleanshutdown"
    marker.unlink()
    marker.mkdir()
    if is_filled:
        (marker / "note.txt").write_text("kept")
    for count in (3, 4, 5):
        with manual_manager(data) as manager:
            assert not manager.log("t", 0).recovery_report.clean
            assert TEXTS[:count] == values(manager, "t", 0)
            append_texts(manager, "t", 0, TEXTS[count])
            assert manager.health().is_healthy
        assert marker.is_dir()
        assert is_filled == bool(list(marker.iterdir()))
    marker.rename(tmp_path / "elsewhere")
    with manual_manager(data) as manager:
        assert not manager.log("t", 0).recovery_report.clean
    with manual_manager(data) as manager:
        assert manager.log("t", 0).recovery_report.clean
        assert TEXTS[:6] == values(manager, "t", 0)


def test_directory_with_the_name_of_the_marker_of_a_log_is_not_a_marker(tmp_path: Path) -> None:
    """HOST-14: as in a data directory."""
    directory = tmp_path / "orders-0"
    with manual_log(directory) as log:
        log.append(numbered(0, 3))
    marker = directory / ".kafka_cleanshutdown"
    marker.unlink()
    marker.mkdir()
    for count in (3, 4):
        for read_only in (True, False):
            with manual_log(directory, read_only=read_only) as log:
                assert not log.recovery_report.clean
                assert list(range(count)) == [record.offset for record in log.records()]
                if not read_only:
                    log.append(numbered(count, 1))
    assert marker.is_dir()
