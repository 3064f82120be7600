"""Requirements of parts of the proof: each function returns why one is absent, or ""."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["fuse", "gcc", "java", "linux", "loop_devices", "root"]


def linux() -> str:
    """Linux."""
    return "" if sys.platform == "linux" else f"it needs Linux, this is {sys.platform}"


def root() -> str:
    """The superuser."""
    return "" if os.geteuid() == 0 else "it must be run as root"


def gcc() -> str:
    """A C compiler."""
    return "" if shutil.which("gcc") or shutil.which("cc") else "there is no C compiler"


def java() -> str:
    """A Java runtime and Maven."""
    missing = [name for name in ("java", "mvn") if shutil.which(name) is None]
    return f"there is no {' and no '.join(missing)}" if missing else ""


def fuse() -> str:
    """File systems of user programs."""
    if not Path("/dev/fuse").exists():
        return "there is no /dev/fuse"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "/dev/fuse may not be opened"
    return ""


@cache
def loop_devices() -> str:
    """Loop devices on which a file system can be made, mounted and unmounted, by trying it."""
    if reason := root():
        return reason
    tools = [name for name in ("losetup", "mkfs.ext4", "mount", "umount") if not shutil.which(name)]
    if tools:
        return f"there is no {', no '.join(tools)}"
    with tempfile.TemporaryDirectory(prefix="kafkalog-proof-needs-") as name:
        image, point = Path(name) / "image", Path(name) / "point"
        point.mkdir()
        with image.open("wb") as file:
            file.truncate(16 << 20)
        made = _quiet("mkfs.ext4", "-q", str(image)) or _quiet(
            "mount", "-o", "loop", str(image), str(point)
        )
        if made:
            return f"loop devices do not work: {made}"
        return _quiet("umount", str(point))


def _quiet(*command: str) -> str:
    """Run a command; return its output if it failed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 0:
        return ""
    said = (done.stderr or done.stdout).strip().splitlines()
    return said[-1] if said else f"{command[0]} failed with status {done.returncode}"
