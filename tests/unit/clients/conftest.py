"""Logs on manual time for the tests of clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.log_sources import Logs


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    """The logs of a directory, with `orders` in three partitions."""
    made = Logs(tmp_path)
    made.create_topic("orders", 3)
    yield made
    made.close()
