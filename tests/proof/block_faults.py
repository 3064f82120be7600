"""A block device through FUSE whose writes or reads fail, then work again, below ext4 and XFS.

`block_device.c` is the disk, a loop device makes a block device of it. A log is written, its writes
fail, the disk works again, the log is opened and acknowledges more; then the power is cut, or the
file system is unmounted in order, or the page cache is emptied, and all that was acknowledged must
be there. The same with reads of a block that fail while the log is opened. Between these, writes of
the mixed workloads are recorded, and replayed in part (`block_replays`).

Option: `only=replayed` (or an ending) for rounds of one kind.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from tests.proof.block_replays import replay
from tests.proof.disks import present_kinds
from tests.proof.disks import run as run_command
from tests.proof.harness import Proof
from tests.proof.workloads import load_modules, workloads

__all__ = ["FaultyDisk", "fuse_library", "run"]

SOURCE = Path(__file__).with_name("block_device.c")
ROOT = SOURCE.parents[2]
KINDS = {"ext4": 64 << 20, "xfs": 320 << 20}
ENDINGS = ("cut", "unmounted", "evicted")
# Instead of a fault: what may be there of the writes of a workload.
REPLAYED = "replayed"
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
STAGE_SECONDS = 120


def fuse_library() -> str:
    """The headers of libfuse 3, and a compiler."""
    if shutil.which("pkg-config") is None or shutil.which("gcc") is None:
        return "there is no gcc or no pkg-config"
    found = subprocess.run(["pkg-config", "--exists", "fuse3"], check=False).returncode == 0
    return "" if found else "there is no libfuse3-dev"


def build(folder: Path) -> Path:
    """Build the block device; return its path."""
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True
    ).stdout.split()
    target = folder / "block_device"
    run_command("gcc", "-O1", "-Wall", "-o", str(target), str(SOURCE), *flags)
    return target


class FaultyDisk:
    """A file system on a block device that fails as it is asked; `point` is where it is mounted."""

    def __init__(self, program: Path, folder: Path, kind: str) -> None:
        self.fuse, self.point = folder / "fuse", folder / "mount"
        self.kind = kind
        self._program = program
        self._device: subprocess.Popen[bytes] | None = None
        self._loop = ""
        # Not `ismount`: a file system that was cut answers nothing.
        self._is_mounted = False

    def __enter__(self) -> Self:
        self.fuse.mkdir(parents=True)
        self.point.mkdir()
        size = str(KINDS[self.kind])
        # It outlives a judge that is killed, and must not hold the judge's output open then.
        self._device = subprocess.Popen(
            [self._program, self.fuse, size, "-f", "-s"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait()
            self._loop = subprocess.run(
                ["losetup", "-f", "--show", self.fuse / "disk"],
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()
            words = {"ext4": ["mkfs.ext4", "-q", "-F"], "xfs": ["mkfs.xfs", "-q", "-f"]}
            run_command(*words[self.kind], self._loop)
            self.mount()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self) -> None:
        until = time.monotonic() + 20
        while not (self.fuse / "disk").exists():
            if time.monotonic() > until:
                raise OSError("the FUSE file system does not come")
            time.sleep(0.01)

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(OSError):
            self.control("heal")
        with contextlib.suppress(OSError):
            self.unmount()
        for words in (["losetup", "-d", self._loop], ["umount", str(self.fuse)]):
            if all(words):
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    subprocess.run(words, capture_output=True, check=False, timeout=60)
        if self._device is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._device.wait(10)
            self._device.kill()
            self._device.wait(10)

    def control(self, command: str) -> None:
        """Send a command to the device."""
        (self.fuse / "control").write_text(command)

    def mount(self) -> None:
        """Mount the file system."""
        run_command("mount", self._loop, str(self.point))
        self._is_mounted = True

    def unmount(self) -> None:
        """Unmount it."""
        if self._is_mounted:
            run_command("umount", str(self.point))
            self._is_mounted = False

    def cut(self) -> None:
        """Let nothing reach the device any more; what was not flushed is gone."""
        descriptor = os.open(self.point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("=I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def evict(self) -> None:
        """Let the page cache forget all files; what is mapped or dirty stays."""
        for path in self.point.rglob("*"):
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)

    def find(self, pattern: bytes) -> int:
        """Return where on the device these bytes are first, -1 where they are not."""
        before, position = b"", 0
        with (self.fuse / "disk").open("rb", buffering=0) as file:
            while piece := file.read(1 << 20):
                found = (before + piece).find(pattern)
                if found >= 0:
                    return position - len(before) + found
                before, position = piece[-len(pattern) :], position + len(piece)
        return -1


class Stage:
    """A process with the log, and its output."""

    def __init__(self, disk: FaultyDisk, stage: str, mark: str) -> None:
        words = [stage, str(disk.point / "t-0"), str(disk.fuse / "control"), mark]
        self.facts: list[dict[str, Any]] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.block_faults_log", *words],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # A stage that hangs is ended, and found by its status.
        self._limit = threading.Timer(STAGE_SECONDS, self.process.kill)
        self._limit.daemon = True
        self._limit.start()

    def read(self) -> bool:
        """Read its lines until it is ready or ends; return whether it reported that it is ready."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            fact = json.loads(line)
            if "ready" in fact:
                return True
            self.facts.append(fact)
        return False

    def end(self, *, kill: bool = False) -> int:
        """Wait until the process has ended; return its status."""
        if kill:
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        status = self.process.wait(STAGE_SECONDS)
        self._limit.cancel()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status

    def durable(self) -> dict[int, str]:
        """Return what was acknowledged as durable."""
        return {fact["durable"]: fact["value"] for fact in self.facts if "durable" in fact}


def run(proof: Proof) -> None:
    """Let writes and reads of blocks fail."""
    if reason := fuse_library():
        proof.skip(reason)
    load_modules()
    program = build(proof.folder)
    kinds = present_kinds(proof, KINDS)
    rounds = [(kind, ending) for kind in kinds for ending in (*ENDINGS, REPLAYED)]
    prefix = proof.options.get("only", "")
    rounds = [each for each in rounds if each[1].startswith(prefix)]
    number = 0
    while proof.seconds_left() > 0:
        proof.random.shuffle(rounds)
        for kind, ending in rounds:
            if proof.seconds_left() <= 0:
                break
            number += 1
            folder = proof.folder / f"round-{number}"
            with FaultyDisk(program, folder, kind) as disk:
                if ending == REPLAYED:
                    replay(proof, disk, proof.random.choice(workloads(proof)), folder)
                else:
                    _fail(proof, disk, ending)
            shutil.rmtree(folder, ignore_errors=True)


def _fail(proof: Proof, disk: FaultyDisk, ending: str) -> None:
    """Let writes fail, then reads."""
    for problem in write_fault(disk, ending, f"MARK{proof.random.randrange(10**9)}X"):
        title = f"a disk ({disk.kind}) whose writes fail and work again loses nothing"
        proof.broken(title, f"{ending}: {problem}", [disk.point / "t-0"])
    proof.count(f"failed writes on {disk.kind}, then {ending}")
    for problem in read_fault(disk):
        title = f"a disk ({disk.kind}) whose reads fail and work again loses nothing"
        proof.broken(title, problem, [disk.point / "t-0"])
    proof.count(f"failed reads on {disk.kind}")


def write_fault(disk: FaultyDisk, ending: str, mark: str) -> Iterator[str]:
    """Let writes fail, work again, then end as given; yield what was lost."""
    failing = Stage(disk, "fail", mark)
    failing.read()
    failing.end()
    disk.control("heal")
    records = failing.durable()
    if len(records) < 20:
        yield f"only {len(records)} records were acknowledged before the fault"
        return
    recovering = Stage(disk, "recover" if ending == "cut" else "recover-and-close", mark)
    if not recovering.read():
        yield f"the log cannot be opened on a disk that works again: status {recovering.end()}"
        return
    for offset, value in recovering.durable().items():
        if records.setdefault(offset, value) != value:
            yield f"offset {offset} has another content after the recovery"
    if ending == "cut":
        disk.cut()
        recovering.end(kill=True)
        disk.unmount()
        disk.mount()
    else:
        recovering.end()
        if ending == "evicted":
            disk.evict()
        else:
            disk.unmount()
            disk.mount()
    yield from _missing(disk, records)


def _missing(disk: FaultyDisk, records: dict[int, str]) -> Iterator[str]:
    checking = Stage(disk, "check", "-")
    if not checking.read():
        yield f"the log cannot be opened: status {checking.end()}"
        return
    checking.end()
    served = {fact["served"]: fact["value"] for fact in checking.facts if "served" in fact}
    for offset, value in sorted(records.items()):
        if served.get(offset) != value:
            yield f"offset {offset} was durable and reads as {served.get(offset)!r:.80}"
            return


def read_fault(disk: FaultyDisk) -> Iterator[str]:
    """Let reads of a block of the log fail; yield what ends in anything but a typed error."""
    checking = Stage(disk, "check", "-")
    checking.read()
    checking.end()
    served = {fact["served"]: fact["value"] for fact in checking.facts if "served" in fact}
    position = disk.find(served[3][:24].encode()) if 3 in served else -1
    if position < 0:
        yield "the log's bytes are not on the disk"
        return
    disk.unmount()
    disk.mount()
    disk.control(f"reads {position - position % 4096} 4096")
    failing = Stage(disk, "check", "-")
    is_ready = failing.read()
    status = failing.end()
    disk.control("heal")
    if not is_ready or status:
        yield f"a block that cannot be read ends the process with status {status}"
    disk.unmount()
    disk.mount()
    yield from _missing(disk, served)
