"""Group commit by itself: what is durable after syncs that work and syncs that fail."""

from __future__ import annotations

import pytest

from kafkalog.errors import LogOfflineError
from kafkalog.log.committer import Committer


class Disk:
    """A sync that reaches `end`, fails where `error` is set, and is counted."""

    def __init__(self) -> None:
        self.end = 0
        self.error: OSError | None = None
        self.syncs = 0

    def sync(self) -> int:
        self.syncs += 1
        if self.error is not None:
            raise self.error
        return self.end


def test_wait_for_what_is_durable_already_syncs_nothing() -> None:
    """One sync covers all below its end."""
    disk = Disk()
    committer = Committer(disk.sync, 5)
    assert 5 == committer.wait_until_durable(5)
    disk.end = 9
    assert 9 == committer.wait_until_durable(6)
    assert 9 == committer.wait_until_durable(9)
    assert 1 == disk.syncs


def test_sync_that_failed_is_not_tried_again() -> None:
    """Whoever waited beside it, or comes later, is told; a retry that says "ok" would lie."""
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
