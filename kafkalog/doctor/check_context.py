"""Input of every check: the machine, the surveyed directories, the settings and the time.

A check is a function from a `CheckContext` to its findings. It only reads; what it cannot read it
adds to `unseen`.

Thread-safety: one examination has one context; the checks run one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkalog.config import LogConfig
from kafkalog.doctor.findings import Finding
from kafkalog.doctor.survey import DirectorySurvey, PartitionSurvey
from kafkalog.files.machine import Machine

__all__ = ["Check", "CheckContext", "size_text"]

_SETTINGS: Final = Path("/proc/sys/vm")
_UNITS: Final = ("KiB", "MiB", "GiB", "TiB")


@dataclass(slots=True)
class CheckContext:
    """
    Input of an examination.

    Attributes:
        machine: the machine, from which checks only read.
        surveys: the directories.
        config: settings of the logs that will be opened there.
        now_ms: the wall clock.
        unseen: what could not be read.
    """

    machine: Machine
    surveys: tuple[DirectorySurvey, ...]
    config: LogConfig
    now_ms: int
    unseen: list[str] = field(default_factory=list)

    @property
    def is_linux(self) -> bool:
        return self.machine.system() == "Linux"

    def partitions(self) -> Iterator[tuple[DirectorySurvey, PartitionSurvey]]:
        """Yield the live partitions of all directories, with the directory of each."""
        for survey in self.surveys:
            for partition in survey.live():
                yield survey, partition

    def kernel_setting(self, name: str) -> int | None:
        """Return `vm.NAME`; None if it cannot be read, with an entry in `unseen` on Linux."""
        value = self.optional_setting(name)
        if value is None and self.is_linux:
            self.skip(f"vm.{name}")
        return value

    def optional_setting(self, name: str) -> int | None:
        """Return `vm.NAME`; None if this kernel does not have it."""
        text = self.machine.read(_SETTINGS / name)
        return int(text) if text is not None and text.strip().isdecimal() else None

    def memory_bytes(self, name: str) -> int | None:
        """
        Return an amount of `/proc/meminfo`; None, and an entry in `unseen`, if it cannot be read.
        """
        text = self.machine.read(Path("/proc/meminfo"))
        for line in (text or "").splitlines():
            fields = line.split()
            if len(fields) >= 2 and fields[0] == f"{name}:" and fields[1].isdecimal():
                return int(fields[1]) * 1024
        if self.is_linux:
            self.skip(f"{name} of /proc/meminfo")
        return None

    def skip(self, what: str) -> None:
        """Record that something could not be read."""
        if what not in self.unseen:
            self.unseen.append(what)


Check = Callable[[CheckContext], Iterator[Finding]]


def size_text(size_bytes: int) -> str:
    """Return a size as text: "3 bytes", "1.5 GiB"."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    step = min((size_bytes.bit_length() - 1) // 10, len(_UNITS))
    return f"{size_bytes / 1024**step:.1f} {_UNITS[step - 1]}"
