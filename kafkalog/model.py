"""Plain values that several rooms share: what a thing is called, where it lies, what happened.

Thread-safety: everything here is immutable. Nothing here touches a disk.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["TopicPartition"]


class TopicPartition(NamedTuple):
    """A topic's name and the number of one of its partitions."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
