"""Cleaners that do as they are told, in the place of real ones."""

from __future__ import annotations

import pytest

from kafkalog.manager.cleaning import cleaner_buffers
from tests.support.fake_cleaner import FakeCleaners


@pytest.fixture(name="cleaners")
def fixture_cleaners(monkeypatch: pytest.MonkeyPatch) -> FakeCleaners:
    """What the manager's threads clean with."""
    cleaners = FakeCleaners()
    monkeypatch.setattr(cleaner_buffers, "Cleaner", cleaners)
    return cleaners
