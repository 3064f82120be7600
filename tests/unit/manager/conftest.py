"""Fixtures of the manager's tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def _quiet() -> Iterator[None]:
    """Do not log errors; the tests expect them and read them in `health()`."""
    logger = logging.getLogger("kafkalog")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
