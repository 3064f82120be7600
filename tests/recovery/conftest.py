"""Fixtures of the recovery tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(name="directory")
def fixture_directory(tmp_path: Path) -> Path:
    """A partition directory that does not exist yet."""
    return tmp_path / "orders-0"
