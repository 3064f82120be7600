"""Fixtures of the doctor's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doctor_fixtures import healthy_directory


@pytest.fixture(name="data")
def fixture_data(tmp_path: Path) -> Path:
    """A data directory at which nothing is wrong, with the partition orders-0 in two segments."""
    return healthy_directory(tmp_path / "data")
