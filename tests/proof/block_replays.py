"""Replays of recorded writes: contents of a disk after a power cut, whatever order it wrote in.

The mixed workloads run on a file system whose block device records every write and every flush. Of
such a record images are made: everything up to a flush is there, and of the writes after it any
blocks, whichever a disk with a cache may have stored by then. Each image is mounted and judged as
after a cut of the power.

What was acknowledged at a moment of the record is known by samples: the length of the shared events
is read first, the length of the record after it. So the flush after an acknowledgement is in the
record, and nothing is expected of an image too early.
"""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import signal
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Protocol

from tests.proof.disks import run as run_command
from tests.proof.harness import Proof
from tests.proof.oracle import Oracle
from tests.proof.rounds import Workload, fork, judge_in_a_child
from tests.proof.shared_events import SharedEvents

__all__ = ["Entry", "Recording", "images_of", "replay", "settled"]

_HEAD = struct.Struct("<QQQ")
_WRITE = 0
_BLOCK_BYTES = 4096
_LONGEST_SECONDS = 6.0
_IMAGES = 6


class RecordingDisk(Protocol):
    """The block device of `block_faults`, with a file system on it."""

    fuse: Path
    point: Path

    def control(self, command: str) -> None:
        """Let the device do something."""

    def mount(self) -> None:
        """Mount the file system."""

    def unmount(self) -> None:
        """Unmount it."""


@dataclass(frozen=True)
class Entry:
    """A write (`data`) or a flush (None), and where the record of it ends."""

    position: int
    data: bytes | None
    end: int


@dataclass
class Recording:
    """
    A record, and the reports with their times.

    Attributes:
        base: image of the disk before it.
        entries: writes and flushes, in order.
        samples: lengths of the record with lengths of the shared events that were read before.
    """

    base: Path
    entries: list[Entry]
    samples: list[tuple[int, int]]

    def length_at(self, end: int) -> int:
        """Return how much the writer had reported for certain when the record was so long."""
        return max((said for recorded, said in self.samples if recorded <= end), default=8)


def replay(proof: Proof, disk: RecordingDisk, workload: Workload, folder: Path) -> None:
    """Record the life of a writer, and judge what the disk may have had at several moments."""
    seed = proof.random.getrandbits(32)
    oracle = Oracle(exact=False, seed=seed)
    shared = SharedEvents(folder / "events")
    shared.clear()
    recording = _record(disk, workload, oracle, shared, folder, Random(seed))
    # The same path as in the recording: the sink's intents name files by their path.
    point, image = disk.point, folder / "image"
    for end, size in images_of(recording, image, proof.random):
        oracle_at_cut = copy.deepcopy(oracle)
        oracle_at_cut.apply(shared.events(8, size), evidence=True)
        oracle_at_cut.apply(shared.events(size, shared.length()), evidence=False)
        oracle_at_cut.ended()
        run_command("mount", "-o", "loop", str(image), str(point))
        with contextlib.ExitStack() as mounted:
            mounted.callback(run_command, "umount", str(point))
            problems, _oracle = judge_in_a_child(workload, point, oracle_at_cut, seed)
            events = folder / "events.txt"
            said = shared.events(8, shared.length())
            events.write_text("".join(f"{event!r}\n" for event in said))
            for problem in problems[:3]:
                text = f"{workload.name}, cut at {end} of the record: {problem.details}"
                proof.broken(f"writes in another order: {problem.title}", text, [events, point])
        proof.count(f"replays of the writes of {workload.name} in another order")


def _record(
    disk: RecordingDisk,
    workload: Workload,
    oracle: Oracle,
    shared: SharedEvents,
    folder: Path,
    random: Random,
) -> Recording:
    """Let a writer work on a disk that records, and end it."""
    disk.unmount()
    base, record = folder / "base", folder / "record"
    run_command("cp", "--sparse=always", str(disk.fuse / "disk"), str(base))
    disk.control(f"record {record}")
    disk.mount()
    process = fork(shared, lambda: workload.write(shared, disk.point, oracle, 1, 100))
    samples = []
    target_length = 8 + random.randrange(workload.longest // 2, 2 * workload.longest)
    deadline = time.monotonic() + _LONGEST_SECONDS
    try:
        while shared.length() < target_length and time.monotonic() < deadline:
            said = shared.length()
            samples.append((record.stat().st_size, said))
            time.sleep(0.002)
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        disk.control("stop")
        disk.unmount()
    return Recording(base, list(_entries(record.read_bytes())), samples)


def _entries(data: bytes) -> Iterator[Entry]:
    """Yield what was recorded."""
    at = 0
    while at + _HEAD.size <= len(data):
        kind, position, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        content = data[at : at + size] if kind == _WRITE else None
        at += size if kind == _WRITE else 0
        yield Entry(position, content, at)


def settled(entries: list[Entry], count: int) -> int:
    """Return how many of the first entries a flush has put on the disk."""
    flushes = [number for number in range(count) if entries[number].data is None]
    return flushes[-1] + 1 if flushes else 0


def images_of(
    recording: Recording, image: Path, random: Random, images: int = _IMAGES
) -> Iterator[tuple[int, int]]:
    """
    Make images at moments of a record, one after the other at the same path.

    Yields the moment, and how much the writer had reported for certain by then.
    """
    entries = recording.entries
    growing = image.with_suffix(".settled")
    shutil.move(recording.base, growing)
    done = 0
    for count in sorted(random.sample(range(len(entries) + 1), min(images, len(entries) + 1))):
        sure = settled(entries, count)
        with growing.open("rb+") as file:
            for entry in entries[done:sure]:
                if entry.data is not None:
                    file.seek(entry.position)
                    file.write(entry.data)
        done = sure
        run_command("cp", "--sparse=auto", str(growing), str(image))
        with image.open("rb+") as file:
            for position, block in _survivors(entries[sure:count], random):
                file.seek(position)
                file.write(block)
        end = entries[count - 1].end if count else 0
        yield end, recording.length_at(end)


def _survivors(entries: list[Entry], random: Random) -> list[tuple[int, bytes]]:
    """Return the blocks of writes without a flush that reached the disk; of one block, in order."""
    share = random.choice((0.0, 0.2, 0.5, 0.8, 1.0))
    return [
        (entry.position + start, entry.data[start : start + _BLOCK_BYTES])
        for entry in entries
        if entry.data is not None
        for start in range(0, len(entry.data), _BLOCK_BYTES)
        if random.random() < share
    ]
