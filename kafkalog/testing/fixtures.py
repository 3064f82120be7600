"""Fixtures of pytest, for tests of programs that store records.

`pytest_plugins = ["kafkalog.testing.fixtures"]` in a program's top `conftest.py` loads them:

    kafkalog_manager    a LogManager on a temporary directory
    kafkalog_log        the log of a topic with one partition
    kafkalog_clock      the time of managers, retention and background tasks
    kafkalog_faults     faults of the disk
    kafkalog_managers   several managers, kills, power cuts, restarts
    kafkalog_config     settings of managers; define a fixture of this name for others

No entry point loads them: pytest would import the package in each run of a program that has
kafkalog installed. This is the only module of the package that imports pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog.log.log import Log
from kafkalog.manager.manager import LogManager
from kafkalog.manager_config import ManagerConfig
from kafkalog.testing.faults import Faults
from kafkalog.testing.managers import ManagerFactory
from kafkalog.testing.manual_time import ManualTime

__all__ = [
    "kafkalog_clock",
    "kafkalog_config",
    "kafkalog_faults",
    "kafkalog_log",
    "kafkalog_manager",
    "kafkalog_managers",
]


@pytest.fixture
def kafkalog_clock() -> ManualTime:
    """Time of the managers of a test, which the test moves by `advance`."""
    return ManualTime()


@pytest.fixture
def kafkalog_config() -> ManagerConfig:
    """Settings of the managers of a test: Kafka's defaults."""
    return ManagerConfig()


@pytest.fixture
def kafkalog_managers(
    tmp_path: Path, kafkalog_clock: ManualTime, kafkalog_config: ManagerConfig
) -> Iterator[ManagerFactory]:
    """Factory of managers, which closes them at the end of the test."""
    with ManagerFactory(tmp_path / "kafkalog", kafkalog_clock, kafkalog_config) as managers:
        yield managers


@pytest.fixture
def kafkalog_manager(kafkalog_managers: ManagerFactory) -> LogManager:
    """Return a manager on an empty data directory, closed at the end of the test."""
    return kafkalog_managers.open()


@pytest.fixture
def kafkalog_log(kafkalog_manager: LogManager) -> Log:
    """Return the empty log of partition 0 of the topic `test`."""
    return kafkalog_manager.create_partition("test", 0)


@pytest.fixture
def kafkalog_faults(kafkalog_managers: ManagerFactory) -> Faults:
    """Return the faults of the disk of the test's managers."""
    return kafkalog_managers.faults
