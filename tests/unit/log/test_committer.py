"""Group commit alone: durable offsets after syncs that succeed and syncs that fail."""

from __future__ import annotations

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
