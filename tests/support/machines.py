"""Machines that are made up, for what asks about the machine under a log."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kafkalog.files.machine import DiskSpace, Ownership

__all__ = ["GIB", "MadeUpMachine"]

GIB = 1 << 30
SPACE = DiskSpace(1000 * GIB, 500 * GIB, 60_000_000, 59_000_000)
OWNER = Ownership(1000, 0o644, True)

_SETTINGS = {
    "dirty_background_bytes": 0,
    "dirty_background_ratio": 10,
    "dirty_bytes": 0,
    "dirty_ratio": 20,
    "dirty_expire_centisecs": 3000,
    "dirty_writeback_centisecs": 500,
    "swappiness": 60,
    "max_map_count": 65530,
}


@dataclass(slots=True)
class MadeUpMachine:
    """
    A Linux of today with ext4, 8 GiB of free memory and no swap, at which nothing is wrong.

    Attributes:
        settings: of the kernel, by their names below `vm`; None for a missing one.
        memory: lines of /proc/meminfo, in KiB.
        mount: what follows the dash in the one line of the table of mounts.
        flags: the options of that mount.
        owners: those of files that do not belong to user 1000.
    """

    name: str = "Linux"
    kernel: str = "6.1.0-13-amd64"
    settings: dict[str, int | str | None] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    mount: str = "ext4 /dev/sda1 rw"
    flags: str = "rw,relatime"
    limits: tuple[int | None, int | None] = (1 << 20, 1 << 20)
    space: DiskSpace | OSError = SPACE
    owners: dict[Path, Ownership | OSError] = field(default_factory=dict)

    def system(self) -> str:
        return self.name

    def release(self) -> str:
        return self.kernel

    def read(self, path: Path) -> str | None:
        if path == Path("/proc/meminfo"):
            memory = {"MemTotal": 16 << 20, "MemAvailable": 8 << 20, "SwapTotal": 0} | self.memory
            return "".join(f"{name}: {size:>12} kB\n" for name, size in memory.items())
        if path == Path("/proc/self/mountinfo"):
            return f"27 1 254:0 / / {self.flags} shared:1 - {self.mount}\n" if self.mount else None
        settings = _SETTINGS | self.settings
        value = settings.get(path.name) if path.parent == Path("/proc/sys/vm") else None
        return None if value is None else f"{value}\n"

    def descriptor_limits(self) -> tuple[int | None, int | None]:
        return self.limits

    def disk_space(self, directory: Path) -> DiskSpace:
        if isinstance(self.space, OSError):
            raise self.space
        return self.space

    def ownership(self, path: Path) -> Ownership:
        found = self.owners.get(path, OWNER)
        if isinstance(found, OSError):
            raise found
        return found
