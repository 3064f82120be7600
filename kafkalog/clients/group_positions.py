"""Port from consumers to the positions of groups, and positions that cannot be committed.

`GroupOffsets` has the positions in `__consumer_offsets`, `PositionsFile` those in a file.

Thread-safety: every method from any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.errors import ReadOnlyLogError
from kafkalog.log.log import Wait
from kafkalog.model import TopicPartition

__all__ = ["GroupPositions", "ReadOnlyPositions"]


class GroupPositions(Protocol):
    """Positions of groups."""

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed positions of a group by partition."""
        ...

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int | None],
        *,
        now_ms: int,
        wait: Wait,
    ) -> None:
        """Commit positions, all of them or none; None removes one."""
        ...


class ReadOnlyPositions:
    """
    Positions of groups in directories that another process writes.

    Args:
        positions: the positions that are read.
    """

    def __init__(self, positions: GroupPositions) -> None:
        self._positions = positions

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """See `GroupPositions`."""
        return self._positions.committed(group)

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int | None],  # noqa: ARG002
        *,
        now_ms: int,  # noqa: ARG002
        wait: Wait,  # noqa: ARG002
    ) -> None:
        """Raise ReadOnlyLogError."""
        raise ReadOnlyLogError(
            f"group {group!r} cannot commit: the manager is read-only; pass positions_file to its"
            " consumer"
        )
