"""A manager whose snapshots of metrics are kept: free space changes between two of them."""

from __future__ import annotations

from kafkalog import LogManager, MetricsSnapshot

__all__ = ["RecordingManager"]


class RecordingManager:
    """Keeps the snapshots that an adapter took."""

    def __init__(self, manager: LogManager) -> None:
        self.snapshots: list[MetricsSnapshot] = []
        self._manager = manager

    @property
    def is_closed(self) -> bool:
        """True if the manager was closed."""
        return self._manager.is_closed

    def metrics(self, *, partitions: bool = True, groups: bool = True) -> MetricsSnapshot:
        """Take and keep a snapshot."""
        self.snapshots.append(self._manager.metrics(partitions=partitions, groups=groups))
        return self.snapshots[-1]
