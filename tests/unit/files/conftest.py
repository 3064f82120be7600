"""Both kinds of disk, so that one suite holds them to the same contract."""

from __future__ import annotations

import os
import posix
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkalog.files.filesystem import FileSystem
from kafkalog.files.posix import PosixFileSystem
from tests.support.simulated_disk import SimulatedDisk


class Disk(NamedTuple):
    """A file system and an empty directory on it."""

    filesystem: FileSystem
    directory: Path


@pytest.fixture(params=["posix", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    """Return the machine's disk, then the simulated one."""
    if request.param == "posix":
        return Disk(PosixFileSystem(), tmp_path)
    simulated = SimulatedDisk()
    simulated.make_durable(tmp_path)
    return Disk(simulated, tmp_path)


@pytest.fixture(autouse=True)
def _syncs_are_real(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let these tests reach the disk, as no others do."""
    monkeypatch.setattr("kafkalog.files.posix.sync_descriptor", posix.fdatasync)
    monkeypatch.setattr(os, "fsync", posix.fsync)
