"""Fixtures of the manager's tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def _quiet() -> Iterator[None]:
    """Log no errors: they are expected, and are looked at in `health()`."""
    logger = logging.getLogger("kafkalog")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
