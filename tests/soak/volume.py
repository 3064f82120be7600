"""Volumes of a soak: bounded file systems on loop devices, or plain folders without root.

Thread-safety: none; the conductor of a run calls one method of a volume at a time.
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

from tests.proof.disks import run, unmount
from tests.soak.sampling import disk_sample

__all__ = ["Volume"]

UNMOUNT_SECONDS = 30


class Volume:
    """
    A place for one data directory.

    Args:
        folder: gets the image and the mount point.
        name: of both.
        size: bytes of the file system; None for a plain folder, which cannot be filled.

    Attributes:
        point: its root directory.
        data: the data directory.
    """

    def __init__(self, folder: Path, name: str, size: int | None) -> None:
        self.size = size
        self.point = folder / name
        self.data = self.point / "data"
        self._image = folder / f"{name}.img"
        self._ballast = self.point / "ballast"
        self._is_mounted = False
        self.point.mkdir(parents=True)

    def make(self) -> None:
        """Make the file system, without blocks that are reserved for root, and mount it."""
        if self.size is not None:
            with self._image.open("wb") as file:
                file.truncate(self.size)
            run("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0", str(self._image))
            self.mount()

    def mount(self) -> None:
        """Mount it."""
        self._is_mounted = True
        run("mount", "-o", "loop,errors=remount-ro", str(self._image), str(self.point))

    def unmount(self) -> None:
        """Unmount it; no process may use it any more. Nothing happens if it is not mounted."""
        if self._is_mounted:
            problem = unmount(self.point, UNMOUNT_SECONDS)
            self._is_mounted = False
            if problem:
                raise OSError(problem)

    def sample(self) -> dict[str, int]:
        """Return the use of the volume, with the space of deleted files that are open."""
        found = disk_sample(self.data)
        if self.size is not None:
            facts = os.statvfs(self.point)
            found["disk"] = (facts.f_blocks - facts.f_bfree) * facts.f_frsize - found["journal"]
            if self._ballast.exists():
                found["disk"] -= self._ballast.stat().st_blocks * 512
        return found

    def fill(self) -> None:
        """Allocate all that is free to a file, up to the last block."""
        handle = os.open(self._ballast, os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            size = os.fstat(handle).st_size
            for step in (16 << 20, 1 << 20, 64 << 10, 4 << 10):
                while True:
                    try:
                        os.posix_fallocate(handle, size, step)
                    except OSError as error:
                        if error.errno != errno.ENOSPC:
                            raise
                        break
                    size += step
        finally:
            os.close(handle)

    def free(self) -> None:
        """Remove the file of `fill`."""
        self._ballast.unlink(missing_ok=True)

    def make_read_only(self) -> None:
        """Let the file system report an error to itself: the kernel makes it read-only."""
        run("mount", "-o", "remount,abort", str(self.point))

    def repair(self) -> None:
        """Unmount it, check and repair it, and mount it, as an operator does."""
        self.unmount()
        done = subprocess.run(
            ["e2fsck", "-f", "-y", str(self._image)], capture_output=True, text=True, check=False
        )
        # 1: errors were corrected, such as the mark of the error, and inodes without a name.
        if done.returncode not in (0, 1):
            raise OSError(f"e2fsck: status {done.returncode}: {done.stdout} {done.stderr}")
        self.mount()
