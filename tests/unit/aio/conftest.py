"""Managers of event loops on a disk that a test fills or holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.held_disk import HeldDisk
from tests.support.loops import Loops


@pytest.fixture
def disk() -> HeldDisk:
    """The disk of the managers of a test."""
    return HeldDisk()


@pytest.fixture
def loops(tmp_path: Path, disk: HeldDisk) -> Loops:
    """Coroutines are run with a manager of one directory, which has the topic `t`."""
    return Loops(tmp_path / "data", disk)
