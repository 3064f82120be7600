"""Of the whole suite: no example has a deadline, and collected tests are not garbage."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("kafkalog", deadline=None)
settings.load_profile("kafkalog")


def pytest_collection_finish(session: pytest.Session) -> None:
    """
    Take what is there now out of every later collection.

    Tests that let go of mappings collect after each step. With all modules and tests of a session
    to walk through, that took a third of a second each time, and minutes of the gate.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _what_earlier_modules_keep_is_not_garbage() -> None:
    """Take what the modules before this one left alive (reports, caches) out of them as well."""
    gc.collect()
    gc.freeze()
