"""Tests that the simulated disk finds wrong protocols, and accepts their correct forms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.simulated_disk import SimulatedDisk

DATA = Path("/data")
FILE = DATA / "file"
OTHER = DATA / "other"
OLD, NEW = b"old" * 400, b"new" * 500

Step = Callable[[SimulatedDisk], None]


def write(path: Path) -> Step:
    """Return a step that writes NEW into a file, from its start."""
    return lambda disk: disk.open(path, create=True).pwrite(NEW, 0)


def sync(path: Path) -> Step:
    """Return a step that syncs a file."""
    return lambda disk: disk.open(path, write=True).sync()


def sync_directory_names(disk: SimulatedDisk) -> None:
    """Sync the directory."""
    disk.sync_directory(DATA)


def rename(disk: SimulatedDisk) -> None:
    """Put OTHER in place of FILE."""
    disk.rename(OTHER, FILE)


def cut(disk: SimulatedDisk) -> None:
    """Truncate FILE to nothing."""
    disk.open(FILE, write=True).truncate(0)


def unlink(disk: SimulatedDisk) -> None:
    """Remove FILE."""
    disk.unlink(FILE)


RIGHT = {
    "replace": [write(OTHER), sync(OTHER), rename, sync_directory_names],
    "copy-then-cut": [write(OTHER), sync(OTHER), sync_directory_names, cut, sync(FILE)],
    "write-anew": [unlink, write(FILE), sync(FILE), sync_directory_names],
}
WRONG = {
    "replace-without-sync-of-the-bytes": [write(OTHER), rename, sync_directory_names],
    "replace-without-sync-of-the-name": [write(OTHER), sync(OTHER), rename],
    "cut-before-the-copy-has-its-bytes": [write(OTHER), sync_directory_names, cut, sync(FILE)],
    "cut-before-the-copy-has-its-name": [write(OTHER), sync(OTHER), cut, sync(FILE)],
    "write-anew-without-sync-of-the-bytes": [unlink, write(FILE), sync_directory_names],
    "write-anew-without-sync-of-the-name": [unlink, write(FILE), sync(FILE)],
}


def keeps_new(steps: list[Step]) -> bool:
    """Run a protocol that claims to have NEW on the disk; return whether every crash agrees."""
    disk = SimulatedDisk()
    disk.make_durable(DATA)
    write_old = disk.open(FILE, create=True)
    write_old.pwrite(OLD, 0)
    disk.make_durable()
    for step in steps:
        step(disk)
    states = [state.snapshot() for _, state in disk.crash_states(100)]
    assert states
    return all(NEW in (state.get(str(FILE)), state.get(str(OTHER))) for state in states)


@pytest.mark.parametrize("name", RIGHT)
def test_protocol_in_right_order_survives_every_crash(name: str) -> None:
    """The data claimed to be on the disk is there."""
    assert keeps_new(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_protocol_without_a_sync_is_found(name: str) -> None:
    """Some crash shows that the claim was false."""
    assert not keeps_new(WRONG[name])
