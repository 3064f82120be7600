"""Group commit alone: durable offsets after syncs that succeed and syncs that fail."""

from __future__ import annotations

import threading

import pytest

from kafkalog.errors import LogOfflineError
from kafkalog.log.committer import Committer


class Disk:
    """A counted sync that reaches `end`, or fails if `error` is set."""

    def __init__(self) -> None:
        self.end = 0
        self.error: OSError | None = None
        self.syncs = 0

    def sync(self) -> int:
        self.syncs += 1
        if self.error is not None:
            raise self.error
        return self.end


def test_wait_for_durable_offset_does_not_sync() -> None:
    """One sync covers all offsets below its end."""
    disk = Disk()
    committer = Committer(disk.sync, 5)
    assert 5 == committer.wait_until_durable(5)
    disk.end = 9
    assert 9 == committer.wait_until_durable(6)
    assert 9 == committer.wait_until_durable(9)
    assert 1 == disk.syncs


def test_failed_sync_is_not_retried() -> None:
    """All present and later waiters get an error; a retry that succeeds would hide lost bytes."""
    disk = Disk()
    committer = Committer(disk.sync, 5)
    disk.end, disk.error = 9, OSError(5, "no")
    with pytest.raises(OSError, match="no"):
        committer.wait_until_durable(9)
    disk.error = None
    with pytest.raises(LogOfflineError):
        committer.wait_until_durable(9)
    with pytest.raises(LogOfflineError):
        committer.flush()
    assert 5 == committer.durable_offset
    assert 1 == disk.syncs
    assert 5 == committer.wait_until_durable(5)


def test_round_of_a_caller_makes_what_it_reached_durable() -> None:
    """The caller syncs, and not the committer; other callers wait for it."""
    disk = Disk()
    committer = Committer(disk.sync, 5)
    truncations_before = committer.begin()
    found: list[int] = []
    waiter = threading.Thread(target=lambda: found.append(committer.wait_until_durable(8)))
    waiter.start()
    waiter.join(0.05)
    assert waiter.is_alive()
    committer.finish(truncations_before, 9)
    waiter.join(20)
    assert [9] == found
    assert 0 == disk.syncs


def test_round_of_a_caller_that_failed_is_not_retried() -> None:
    """As after a failed sync of the committer."""
    disk = Disk()
    committer = Committer(disk.sync, 5)
    committer.begin()
    committer.fail(OSError(5, "no"))
    for call in (committer.flush, committer.begin):
        with pytest.raises(LogOfflineError, match=r"an earlier sync failed.*no"):
            call()
    assert (5, 0) == (committer.durable_offset, disk.syncs)


def test_round_of_a_caller_reaches_nothing_that_was_truncated() -> None:
    """Later appends have the same offsets, and other bytes."""
    committer = Committer(Disk().sync, 5)
    truncations_before = committer.begin()
    committer.lower(7)
    committer.finish(truncations_before, 9)
    assert 5 == committer.durable_offset


def test_changes_are_reported_in_order_with_the_lowered_ones() -> None:
    """A rise is reported after the sync, a fall before the truncation; nothing else is."""
    disk, reports = Disk(), []
    committer = Committer(
        disk.sync, 5, lambda offset, is_lowered: reports.append((offset, is_lowered))
    )
    disk.end = 9
    committer.flush()
    committer.flush()
    committer.lower(9)
    committer.lower(7)
    disk.end = 8
    committer.flush()
    disk.error = OSError(5, "no")
    with pytest.raises(OSError, match="no"):
        committer.flush()
    assert [(9, False), (7, True), (8, False)] == reports


def test_end_that_was_truncated_during_a_sync_is_not_reported() -> None:
    """The end that the sync reached was removed during it."""
    disk, reports = Disk(), []
    committer = Committer(
        disk.sync, 5, lambda offset, is_lowered: reports.append((offset, is_lowered))
    )
    truncations_before = committer.begin()
    committer.lower(3)
    committer.finish(truncations_before, 9)
    assert [(3, True)] == reports
