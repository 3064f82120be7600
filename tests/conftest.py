"""Of the whole suite: no deadlines, no waiting for a disk, and collected tests are no garbage."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.bytecode import kept_bytecode
from tests.support.examples import examples

# The duration of an example depends on the load of the machine.
settings.register_profile("kafkalog", deadline=None, max_examples=examples(100))
settings.load_profile("kafkalog")

os.environ.update(kept_bytecode())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """
    Put the tests first that have to run in one process, one after the other.

    One of them that is begun late runs on while the other worker has nothing to do any more.
    """
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """
    Take what is there now out of every later collection.

    Tests that release mappings collect after each step. With all modules and tests of a session
    to walk through, that took a third of a second each time, and minutes of the gate.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _what_earlier_modules_keep_is_not_garbage() -> None:
    """Take what the modules before this one left alive (reports, caches) out of them as well."""
    gc.collect()
    gc.freeze()


def _synced(descriptor: int) -> None:
    """Do what a sync does for a test: fail for a descriptor that is none."""
    os.fstat(descriptor)


@pytest.fixture(scope="session", autouse=True)
def _no_test_waits_for_a_disk() -> Iterator[None]:
    """
    Let syncs of this process be as quick as they are in memory.

    A sync that succeeds changes nothing that a test could see: what a power cut leaves is shown on
    the simulated disk, what a killed process leaves does not depend on them. They were half the
    time of tests that open and close many logs. KAFKALOG_TEST_SYNCS=1 lets them through.
    """
    if os.environ.get("KAFKALOG_TEST_SYNCS"):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kafkalog.files.posix.sync_descriptor", _synced)
        patch.setattr(os, "fsync", _synced)
        yield
