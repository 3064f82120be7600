"""Fixture of a fake cleaner, which replaces the real one."""

from __future__ import annotations

import pytest

from kafkalog.manager.cleaning import cleaner_buffers
from tests.support.fake_cleaner import FakeCleaners


@pytest.fixture(name="cleaners")
def fixture_cleaners(monkeypatch: pytest.MonkeyPatch) -> FakeCleaners:
    """Fake cleaners, which the threads of the manager use."""
    cleaners = FakeCleaners()
    monkeypatch.setattr(cleaner_buffers, "Cleaner", cleaners)
    return cleaners
