"""Fixtures of the tests of `kafkalog.testing`: a factory of managers and an open one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalog import LogManager
from kafkalog.testing import ManagerFactory


@pytest.fixture(name="managers")
def fixture_managers(tmp_path: Path) -> Iterator[ManagerFactory]:
    """Factory of managers."""
    with ManagerFactory(tmp_path) as managers:
        yield managers


@pytest.fixture(name="manager")
def fixture_manager(managers: ManagerFactory) -> LogManager:
    """Manager with the topic `orders` of two partitions."""
    manager = managers.open()
    manager.create_topic("orders", 2)
    return manager
