"""What every check is given: the machine, the surveyed directories, the settings, the time.

A check is a function from a `CheckContext` to the findings it has. It only looks; what it cannot
look at it notes in `unseen`.

Thread-safety: one examination has one situation; checks run one behind the other.
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
    What is examined.

    Attributes:
        machine: the machine, at which checks only look.
        surveys: the directories.
        config: settings of the logs that will be opened there.
        now_ms: the wall clock.
        unseen: what could not be looked at.
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
        """Return `vm.NAME`; None, and a note where there should be one, if it cannot be read."""
        value = self.optional_setting(name)
        if value is None and self.is_linux:
            self.skip(f"vm.{name}")
        return value

    def optional_setting(self, name: str) -> int | None:
        """Return `vm.NAME`, which not every kernel has; None where this one has it not."""
        text = self.machine.read(_SETTINGS / name)
        return int(text) if text is not None and text.strip().isdecimal() else None

    def memory_bytes(self, name: str) -> int | None:
        """Return an amount of `/proc/meminfo`; None, and a note, where it cannot be read."""
        text = self.machine.read(Path("/proc/meminfo"))
        for line in (text or "").splitlines():
            fields = line.split()
            if len(fields) >= 2 and fields[0] == f"{name}:" and fields[1].isdecimal():
                return int(fields[1]) * 1024
        if self.is_linux:
            self.skip(f"{name} of /proc/meminfo")
        return None

    def skip(self, what: str) -> None:
        """Note that something could not be looked at."""
        if what not in self.unseen:
            self.unseen.append(what)


Check = Callable[[CheckContext], Iterator[Finding]]


def size_text(size_bytes: int) -> str:
    """Return a size for people: "3 bytes", "1.5 GiB"."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    step = min((size_bytes.bit_length() - 1) // 10, len(_UNITS))
    return f"{size_bytes / 1024**step:.1f} {_UNITS[step - 1]}"
