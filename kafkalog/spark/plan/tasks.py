"""What a task of a query reads: ranges of offsets, of one partition or several.

Thread-safety: immutable plain data; it pickles, and is what goes from the driver to the workers.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LogSplit", "SplitRange"]


@dataclass(frozen=True, slots=True)
class SplitRange:
    """
    Records of one partition.

    Attributes:
        directory: of the partition.
        topic, partition: its name.
        start, end: offsets; the end is exclusive, and never moves: a task that is repeated reads
            the same.
        follows: whether another range of the query ends where this one begins. Damage that begins
            there is told there.
    """

    directory: str
    topic: str
    partition: int
    start: int
    end: int
    follows: bool = False


@dataclass(frozen=True, slots=True)
class LogSplit:
    """
    What one task reads.

    Attributes:
        ranges: one after the other.
        size_bytes: about how many bytes of the log that is.
    """

    ranges: tuple[SplitRange, ...]
    size_bytes: int

    @property
    def offset_count(self) -> int:
        """How many offsets lie in the ranges; of a compacted log not all of them have a record."""
        return sum(each.end - each.start for each in self.ranges)
