"""Interface of an object with metrics, `LogManager`, and the text of its labels.

Thread-safety: as its implementation.
"""

from __future__ import annotations

from typing import Protocol

from kafkalog.manager.metrics.snapshot import MetricsSnapshot

__all__ = ["MetricsSource", "label_text"]


class MetricsSource(Protocol):
    """Object with metrics."""

    @property
    def is_closed(self) -> bool: ...

    def metrics(self, *, partitions: bool = True, groups: bool = True) -> MetricsSnapshot: ...


def label_text(label: str) -> str:
    """Return a label as valid Unicode: names of files may have bytes that are not UTF-8."""
    return label.encode("utf-8", "backslashreplace").decode("utf-8")
