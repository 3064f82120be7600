"""Defaults that change while a manager runs: the logs that use them, and their file."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog import ConfigError, DiskFullError, LogConfig, ManagerConfig, OutOfOrderSequenceError
from kafkalog.manager_config import changeable_keys
from tests.support.managers import SMALL_LOG, manual_manager, scheduler_of
from tests.support.producing import Client
from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")


def test_changed_default_applies_to_open_and_later_logs(tmp_path: Path) -> None:
    """It applies at once, except to topics that override it."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders", 2)
        manager.create_topic("kept", 1, {"retention.ms": "-1"})
        open_already, kept = manager.log("orders", 0), manager.log("kept")
        change = manager.reconfigure_defaults(
            {"log.retention.ms": "5", "producer.id.expiration.ms": "7"}
        )
        assert {"retention.ms", "producer.id.expiration.ms"} == set(change.at_once)
        assert 5 == open_already.config.retention_ms == manager.log("orders", 1).config.retention_ms
        assert -1 == kept.config.retention_ms
        assert (5, 7) == (manager.config.log.retention_ms, manager.config.producer_id_expiration_ms)
        assert 5 == manager.topic_configs.defaults.retention_ms
        manager.reconfigure("kept", {"retention.ms": None})
        assert 5 == kept.config.retention_ms


def test_changed_default_overrides_the_config_of_later_starts(tmp_path: Path) -> None:
    """Until it is removed: then the config of the manager applies."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders", 1, {"segment.bytes": "700"})
        manager.reconfigure_defaults({"log.retention.ms": "5", "log.segment.bytes": "900"})
    manager_config = ManagerConfig(log=SMALL_LOG.replace(retention_ms=11, retention_bytes=12))
    with manual_manager(tmp_path, config=manager_config) as manager:
        config = manager.log("orders").config
        assert (5, 12, 700) == (config.retention_ms, config.retention_bytes, config.segment_bytes)
        assert not manager.reconfigure_defaults({"log.retention.ms": "5"})
        change = manager.reconfigure_defaults({"log.retention.ms": None, "log.roll.ms": None})
        assert ("retention.ms",) == change.at_once
        assert 11 == config.retention_ms + 6 == manager.log("orders").config.retention_ms
    with manual_manager(tmp_path) as manager:
        defaults = manager.topic_configs.defaults
        assert (SMALL_LOG.retention_ms, 900) == (defaults.retention_ms, defaults.segment_bytes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"retention.ms": "5"}, r"did you mean log\.retention\.ms"),
        ({"log.retention.hours": "5"}, r"read only when a manager is made.*log\.retention\.ms"),
        ({"log.dirs": "/elsewhere"}, "read only when a manager is made"),
        ({"kafkalog.open.files.max": "9"}, "read only when a manager is made"),
        ({"log.retention.ms": "0"}, "at least 1"),
        ({"log.retention.ms": "soon"}, "must be"),
        ({"log.local.retention.ms": "5"}, "has no meaning here"),
        ({"log.cleaner.max.compaction.lag.ms": "50"}, "topic lagging"),
    ],
)
def test_invalid_default_is_refused_and_changes_nothing(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    """Valid keys of the same call are not applied; a contradicting topic is named."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("lagging", 1, {"min.compaction.lag.ms": "60"})
        before = manager.config
        with pytest.raises(ConfigError, match=message):
            manager.reconfigure_defaults({"log.retention.bytes": "77"} | changes)
        assert before is manager.config
        assert before.log == manager.topic_configs.defaults


def test_every_changeable_key_accepts_its_current_value(tmp_path: Path) -> None:
    """That changes nothing; None neither."""
    properties = ManagerConfig(log=LogConfig()).to_properties()
    same = {key: properties[key] for key in changeable_keys()}
    with manual_manager(tmp_path, config=ManagerConfig()) as manager:
        assert not manager.reconfigure_defaults(same)
        assert not manager.reconfigure_defaults(dict.fromkeys(same))
        assert ManagerConfig() == manager.config


def test_changed_producer_expiration_applies_to_open_logs(tmp_path: Path) -> None:
    """The next check removes idle producers, which may then begin with any sequence."""
    with manual_manager(tmp_path) as manager:
        manager.create_topic("orders")
        log, client = manager.log("orders"), Client(7)
        client.send(log)
        client.sequence = 5
        scheduler_of(manager).advance(600_000)
        with pytest.raises(OutOfOrderSequenceError):
            client.send(log)
        manager.reconfigure_defaults({"producer.id.expiration.ms": "1000"})
        scheduler_of(manager).advance(600_000)
        client.send(log)


def test_changed_default_that_cannot_be_written_is_not_applied() -> None:
    """The call raises, and may be repeated."""
    disk = SimulatedDisk()
    with manual_manager(DATA, filesystem=disk) as manager:
        manager.create_topic("orders")
        disk.fail_at(1, errno.ENOSPC, only=frozenset({"pwrite"}))
        with pytest.raises(DiskFullError):
            manager.reconfigure_defaults({"log.retention.ms": "5"})
        assert SMALL_LOG.retention_ms == manager.log("orders").config.retention_ms
        manager.reconfigure_defaults({"log.retention.ms": "5"})
        assert 5 == manager.log("orders").config.retention_ms


def test_default_changed_during_an_offline_directory_is_copied_to_it() -> None:
    """The newest file counts, so the next manager may have any of the directories."""
    disk, first, second = SimulatedDisk(), Path("/disks/a"), Path("/disks/b")
    with manual_manager(first, second, filesystem=disk) as manager:
        manager.create_topic("orders", 2)
        manager.reconfigure_defaults({"log.retention.ms": "5"})
        scheduler_of(manager).clock.advance(5)
        disk.fail_at(1, errno.EIO, only=frozenset({"pwrite"}))
        manager.reconfigure_defaults({"log.retention.ms": "6"})
        assert [False, True] == [each.is_online for each in manager.health().directories]
        manager.bring_online(first)
    with manual_manager(first, filesystem=disk) as manager:
        assert 6 == manager.log("orders").config.retention_ms
