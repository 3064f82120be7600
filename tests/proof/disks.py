"""File systems on loop devices, and how to cut their power.

A cut is the file system's own shutdown call without a flush of its journal: from that moment on
nothing reaches the device any more, and everything that was not flushed before is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.proof.harness import Proof

__all__ = ["Disk", "present_kinds", "run", "shared_folder", "unmount"]

# _IOR('X', 125, __u32), of both: FS_IOC_SHUTDOWN, XFS_IOC_GOINGDOWN.
_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
SIZES = {"ext4": 256 << 20, "xfs": 320 << 20}


def present_kinds(proof: Proof, kinds: Iterable[str]) -> list[str]:
    """Return the file systems that this machine can make; the others are noted on the page."""
    present = []
    for kind in kinds:
        if shutil.which(f"mkfs.{kind}") is None:
            proof.note(f"{kind} was left out: there is no mkfs.{kind}.")
            proof.say(f"{kind.upper()} IS LEFT OUT: there is no mkfs.{kind}")
        else:
            present.append(kind)
    return present


class Disk:
    """One image with one file system; `point` is where it is mounted."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.image = folder / f"{kind}.img"
        self.point = folder / f"{kind}.mount"
        self.point.mkdir(exist_ok=True)
        self._is_mounted = False

    def make(self) -> None:
        """Make a new file system, and mount it."""
        self.unmount()
        self.image.unlink(missing_ok=True)
        with self.image.open("wb") as file:
            file.truncate(SIZES[self.kind])
        words = {
            "ext4": ["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            "xfs": ["mkfs.xfs", "-q", "-f"],
        }[self.kind]
        run(*words, str(self.image))
        self.mount()

    def mount(self) -> None:
        """Mount it; the file system replays its journal."""
        # Before: a process that ends during the mount does not learn whether it was mounted.
        self._is_mounted = True
        run("mount", "-o", "loop", str(self.image), str(self.point))

    def unmount(self) -> None:
        """Unmount it, where it is mounted; processes that have files open must be gone."""
        if self._is_mounted:
            problem = unmount(self.point)
            self._is_mounted = False
            if problem:
                raise OSError(problem)

    def cut(self, descriptor: int) -> None:
        """Cut the power; `descriptor` is of a file or directory of the file system."""
        fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("=I", _NO_LOG_FLUSH))

    def again(self) -> None:
        """Unmount and mount: the next start of the machine."""
        self.unmount()
        self.mount()

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        """Hold a descriptor of the root directory, for `cut`."""
        descriptor = os.open(self.point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def shared_folder(fallback: Path, needed: int) -> Iterator[Path]:
    """Yield a temporary folder in memory where there is space for so many bytes, else another."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > 4 * needed:
        with tempfile.TemporaryDirectory(
            prefix="kafkalog-proof-", dir=memory, ignore_cleanup_errors=True
        ) as name:
            yield Path(name)
    else:
        yield fallback


def unmount(point: Path, seconds: float = 60) -> str:
    """
    Unmount a file system; no mount stays, whichever process has it open.

    Args:
        point: where it is mounted, perhaps.
        seconds: time for processes to close their files.

    Returns:
        A message if it was in use until the end, and is detached; else nothing.
    """
    deadline = time.monotonic() + seconds
    while True:
        done = subprocess.run(["umount", str(point)], capture_output=True, text=True, check=False)
        if done.returncode == 0 or "not mounted" in done.stderr:
            return ""
        if time.monotonic() > deadline:
            run("umount", "--lazy", str(point))
            return f"{point} cannot be unmounted: {done.stderr.strip()}"
        time.sleep(0.005)


def run(*command: str) -> None:
    """Run a command; OSError with its output if it failed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise OSError(f"{' '.join(command)}: status {done.returncode}: {said}")
