"""Of the whole suite: thousands of collected tests are no business of the garbage collector."""

from __future__ import annotations

import gc

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """
    Take what is there now out of every later collection.

    Tests that let go of mappings collect after each step. With all modules and tests of a session
    to walk through, that took a third of a second each time, and minutes of the gate.
    """
    gc.collect()
    gc.freeze()
