"""Fixtures of all tests of threads."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def fixture_switch_often() -> Iterator[None]:
    """Let threads take turns every 0.2 ms: more interleavings, and a writer that is not starved."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0002)
    yield
    sys.setswitchinterval(before)
