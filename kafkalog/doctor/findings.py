"""Findings of an examination: each with what was seen, why it matters and what to change.

Thread-safety: all values are immutable.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Advice", "Diagnosis", "Finding", "Severity", "named"]

# Number of names of a long list that a sentence shows.
_SHOWN = 3


class Severity(IntEnum):
    """Severity of a finding."""

    NOTE = 0  # worth knowing; nothing has to change
    WARNING = 1  # costs time or space, or will become a fault
    ERROR = 2  # a promise about data does not hold, or the directory cannot be used


class Advice(NamedTuple):
    """Texts of a check about one kind of thing: see `Finding`."""

    severity: Severity
    matters: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Finding:
    """
    One result of a check.

    Attributes:
        severity: the severity.
        check: name of the check, which stays the same: "vm.swappiness".
        seen: what is there.
        matters: why that is important.
        remedy: what to change, as a command where there is one; empty if nothing has to be changed.
        paths: all files and directories concerned.
    """

    severity: Severity
    check: str
    seen: str
    matters: str
    remedy: str = ""
    paths: tuple[Path, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as plain values."""
        return {
            "severity": self.severity.name.lower(),
            "check": self.check,
            "seen": self.seen,
            "matters": self.matters,
            "remedy": self.remedy,
            "paths": [str(path) for path in self.paths],
        }


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """
    Result of an examination.

    Attributes:
        directories: the directories that were examined.
        partition_count, segment_count, log_bytes: totals of the live partitions.
        findings: the worst ones first.
        unseen: what could not be read, and so may be right or wrong.
    """

    directories: tuple[Path, ...]
    partition_count: int
    segment_count: int
    log_bytes: int
    findings: tuple[Finding, ...]
    unseen: tuple[str, ...]

    def count(self, severity: Severity) -> int:
        """Return how many findings are of one severity."""
        return sum(finding.severity is severity for finding in self.findings)

    @property
    def is_well(self) -> bool:
        """True if nothing worse than notes was found."""
        return all(finding.severity is Severity.NOTE for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnosis as plain values."""
        return {
            "directories": [str(path) for path in self.directories],
            "partitions": self.partition_count,
            "segments": self.segment_count,
            "log_bytes": self.log_bytes,
            "findings": [finding.as_dict() for finding in self.findings],
            "unseen": list(self.unseen),
        }


def named(names: list[str]) -> str:
    """Return the first of some names as a part of a sentence, and how many there are besides."""
    shown = ", ".join(names[:_SHOWN])
    others = len(names) - _SHOWN
    return f"{shown} and {others} others" if others > 0 else shown
