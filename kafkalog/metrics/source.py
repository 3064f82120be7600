"""Interface of an object with metrics: `LogManager`.

Thread-safety: as its implementation.
"""

from __future__ import annotations

from typing import Protocol

from kafkalog.manager.metrics.snapshot import MetricsSnapshot

__all__ = ["MetricsSource"]


class MetricsSource(Protocol):
    """Object with metrics."""

    @property
    def is_closed(self) -> bool: ...

    def metrics(self, *, partitions: bool = True, groups: bool = True) -> MetricsSnapshot: ...
