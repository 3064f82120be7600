"""Every state that a power cut may leave of some logs: each file any whole batches above its sync.

A scenario runs on real files while this notes, by the system calls that sync them, how much of each
`.log` file is on the disk. A *moment* is a point of the scenario: what was synced, how much was
written, and the caller's results. Each combination of lengths at batch boundaries that is
legal at some moment is made as a real directory, once, whatever the number of its moments.

Nothing of kafkalog decides here what a file holds or what survives. Thread-safety: none.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import pytest

__all__ = ["LogCuts", "Moment"]

Facts = TypeVar("Facts")
Lengths = tuple[int, ...]
# Base offset and length lead each batch; the length counts what follows it.
LENGTH_END = 12


@dataclass(frozen=True)
class Moment(Generic[Facts]):
    """
    A point of a scenario.

    Attributes:
        synced, written: bytes of each file that are on the disk, and that are in it at all.
        facts: what was known to the caller then.
    """

    synced: Lengths
    written: Lengths
    facts: Facts

    def allows(self, lengths: Lengths) -> bool:
        """Return whether a power cut at this moment may leave these lengths."""
        return all(
            low <= length <= high
            for low, length, high in zip(self.synced, lengths, self.written, strict=True)
        )


class LogCuts(Generic[Facts]):
    """
    The cuts of one scenario.

    Args:
        directory: with the partitions' directories; each has one segment, and keeps it.
        patch: puts itself between kafkalog and the system's sync.

    Attributes:
        moments: those noted so far.
        facts: what `note` takes for each moment; the scenario replaces it.
    """

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch, facts: Facts) -> None:
        self.facts = facts
        self.moments: list[Moment[Facts]] = []
        self.sync_count = 0
        self._directory = directory
        self._files = sorted(directory.glob("*/*.log"))
        self._inodes = [each.stat().st_ino for each in self._files]
        # Files from before count as durable.
        self._synced = {each.stat().st_ino: each.stat().st_size for each in self._files}
        self._template = directory.with_name(directory.name + ".before")
        shutil.copytree(directory, self._template, ignore=shutil.ignore_patterns(".lock"))
        patch.setattr("kafkalog.files.posix.sync_descriptor", self._sync)

    def note(self) -> None:
        """Note a moment."""
        written = tuple(each.stat().st_size for each in self._files)
        synced = tuple(self._synced[inode] for inode in self._inodes)
        self.moments.append(Moment(synced, written, self.facts))

    def states(self) -> Iterator[tuple[Lengths, list[Moment[Facts]]]]:
        """Yield each state that some moment allows, and all moments that do."""
        boundaries = [_boundaries(each) for each in self._files]
        found: dict[Lengths, list[Moment[Facts]]] = {}
        for moment in self.moments:
            choices = [
                [end for end in ends if low <= end <= high]
                for ends, low, high in zip(boundaries, moment.synced, moment.written, strict=True)
            ]
            for lengths in itertools.product(*choices):
                found.setdefault(lengths, []).append(moment)
        yield from found.items()

    def make(self, target: Path, lengths: Lengths) -> None:
        """Make the directory that a power cut leaves."""
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self._template, target)
        for file, length in zip(self._files, lengths, strict=True):
            with file.open("rb") as source:
                (target / file.relative_to(self._directory)).write_bytes(source.read(length))

    def _sync(self, descriptor: int) -> None:
        facts = os.fstat(descriptor)
        if facts.st_ino in self._synced:
            # Just before it, when most may be lost.
            self.note()
            self._synced[facts.st_ino] = facts.st_size
            self.sync_count += 1


def _boundaries(path: Path) -> list[int]:
    data = path.read_bytes()
    ends = [0]
    while ends[-1] + LENGTH_END <= len(data):
        start = ends[-1]
        ends.append(start + LENGTH_END + int.from_bytes(data[start + 8 : start + LENGTH_END]))
    assert ends[-1] == len(data), "nothing but whole batches is written"
    return ends
