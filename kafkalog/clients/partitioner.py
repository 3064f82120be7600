"""Which partition a record without one goes to, as Kafka's producers choose it.

A record with a key goes where murmur2 of the key says: all records of a key are in one partition.
One without a key sticks to a partition until a batch's worth of such records went there, and then
goes to another, drawn by lot: small batches of every partition would cost more than they spread.

Thread-safety: every method from any thread; two threads at a turn may both turn.
"""

from __future__ import annotations

from random import Random

from kafkalog._core.murmur2 import partition_of

__all__ = ["StickyPartition", "partition_of"]


class StickyPartition:
    """
    The partition of a topic that records without a key go to for now.

    Args:
        partition_count: how many the topic has.
        stick_bytes: how much goes to one before it is another's turn.
        random: draws lots.

    Attributes:
        partition: the present one.
    """

    __slots__ = ("_count", "_left_bytes", "_random", "_stick_bytes", "partition")

    def __init__(self, partition_count: int, stick_bytes: int, random: Random) -> None:
        self._count = partition_count
        self._stick_bytes = stick_bytes
        self._random = random
        self.partition = random.randrange(partition_count)
        self._left_bytes = stick_bytes

    def count_record(self, size: int) -> None:
        """Count a record that went to the present partition."""
        self._left_bytes -= size
        if self._left_bytes <= 0:
            self._left_bytes = self._stick_bytes
            self.partition = self._random.randrange(self._count)
