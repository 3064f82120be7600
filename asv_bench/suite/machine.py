"""Conditions of a measurement: the machine, its software, and other work on it.

Reads `/proc`; never measures anything itself.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import sqlite3
import subprocess
import tempfile
import time
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "numpy",
    "aiokafka",
    "kafka-python",
    "confluent-kafka",
    "lmdb",
    "rocksdict",
    "pyarrow",
    "pyspark",
    "crc32c",
    "lz4",
    "zstandard",
)
# Of the first line of /proc/stat: user, nice, system, irq, softirq and steal are time that is gone.
BUSY_FIELDS = (1, 2, 3, 6, 7, 8)


def describe() -> dict[str, str]:
    """Return what to know about this machine, by names to show."""
    return {
        "CPU": f"{_cpu_model()}, {os.cpu_count()} cores",
        "CRC-32C kernel": _crc_kernel(),
        "memory": f"{_memory_bytes() / (1 << 30):.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "file system": _file_system(Path(tempfile.gettempdir())),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "Java": _java(),
        "peers": ", ".join(
            [*(f"{name} {_version(name)}" for name in PACKAGES), f"SQLite {sqlite3.sqlite_version}"]
        ),
    }


def load_average() -> tuple[float, float, float]:
    """Return the load of the last 1, 5 and 15 minutes."""
    one, five, fifteen = os.getloadavg()
    return round(one, 1), round(five, 1), round(fifteen, 1)


class OthersMeter:
    """Counts how many cores other programs kept busy since it was made."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._busy = busy_seconds(Path("/proc/stat").read_text("ascii"))
        self._ours = _own_seconds()

    def cores(self) -> float:
        """Return the mean since then; our children count when they have ended."""
        busy = busy_seconds(Path("/proc/stat").read_text("ascii")) - self._busy
        elapsed = max(time.monotonic() - self._begun, 1e-3)
        return round(max(0.0, busy - (_own_seconds() - self._ours)) / elapsed, 2)


def busy_seconds(stat: str, *, ticks_per_second: int | None = None) -> float:
    """Return the time that all cores together were busy, of the text of /proc/stat."""
    fields = stat.splitlines()[0].split()
    ticks = sum(int(fields[number]) for number in BUSY_FIELDS)
    return ticks / (ticks_per_second or os.sysconf("SC_CLK_TCK"))


def _own_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^flags\s*:\s*(.+)$", text, re.MULTILINE)
    has = set(flags[1].split()) if flags else set()
    wide = [name.upper() for name in ("avx2", "avx512bw", "vpclmulqdq") if name in has]
    return ", ".join([match[1] if match else platform.machine(), *wide])


def _crc_kernel() -> str:
    from kafkalog._core import crc32c

    return crc32c.implementation()


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _file_system(directory: Path) -> str:
    """Return the kind of file system that temporary files are on."""
    return kind_of_mount(str(directory.resolve()), Path("/proc/mounts").read_text("utf-8"))


def kind_of_mount(path: str, mounts: str) -> str:
    """Return the kind of the file system that a path is on, of the text of /proc/mounts."""
    best, kind = "", "unknown"
    for line in mounts.splitlines():
        _device, point, found, *_rest = line.split()
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def _java() -> str:
    if shutil.which("java") is None:
        return "none"
    answer = subprocess.run(
        ["java", "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    match = re.search(r'version "([^"]+)"', answer.stderr + answer.stdout)
    return match[1] if match else "unknown"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "(absent)"
