"""Numbered records of clients, and the judge of their order: none lost, none twice, none changed.

A client numbers its records of one partition from 0. The value of a record follows from the name of
the client and the number, so a reader knows what must come next and needs no copy of what was sent.

Thread-safety: none; an object belongs to one thread.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from kafkalog import TopicPartition

__all__ = [
    "ABORTED",
    "RECORD_BYTES",
    "OrderJudge",
    "missing_records",
    "record_value",
    "record_values",
]

# Name of the records of transactions that are aborted.
ABORTED = "aborted"
SIZE_MIN, SIZE_SPREAD = 120, 160
# Mean size of a value.
RECORD_BYTES = SIZE_MIN + SIZE_SPREAD // 2
# Violations that a judge keeps; it counts all.
VIOLATIONS_MAX = 50


def record_value(name: str, number: int) -> bytes:
    """Return the value of a client's record: name, number, and bytes that follow from both."""
    head = b"%s %d " % (name.encode(), number)
    digest = hashlib.blake2b(head, digest_size=16).hexdigest().encode()
    size = SIZE_MIN + int(digest[:4], 16) % SIZE_SPREAD
    return (head + digest * (size // len(digest) + 1))[:size]


def record_values(name: str, first: int, count: int) -> list[bytes]:
    """Return the values of consecutive records of a client."""
    return [record_value(name, number) for number in range(first, first + count)]


class OrderJudge:
    """
    Judge of the records that a reader sees, in the order of each partition.

    Attributes:
        next_numbers: by client, the number that its next record must have.
        record_count: number of records that were judged.
        violations: the first violations, as sentences.
        violation_count: number of all violations.
    """

    def __init__(
        self, next_numbers: Mapping[str, int] | None = None, record_count: int = 0
    ) -> None:
        self.next_numbers = dict(next_numbers or {})
        self.record_count = record_count
        self.violation_count = 0
        self.violations: list[str] = []
        self._partitions: dict[str, TopicPartition] = {}
        # Clients of these partitions may continue at a larger number, each once.
        self._gaps: dict[TopicPartition, set[str]] = {}

    def read(self, partition: TopicPartition, values: Iterable[bytes | None]) -> None:
        """Judge the next records of a partition."""
        for value in values:
            self.record_count += 1
            self._judge(partition, value or b"")

    def allow_gap(self, partition: TopicPartition) -> None:
        """Allow the clients of a partition to continue at larger numbers: the start has moved."""
        self._gaps[partition] = set()

    def _judge(self, partition: TopicPartition, value: bytes) -> None:
        words = value[:100].split(b" ")
        try:
            name, number = words[0].decode(), int(words[1])
        except (IndexError, ValueError):
            self._violate(f"{partition} has a record that no client has sent: {value[:40]!r}")
            return
        if name == ABORTED:
            self._violate(f"{partition} has record {number} of an aborted transaction")
        elif value != record_value(name, number):
            self._violate(f"record {number} of {name} in {partition} has other contents")
        elif self._partitions.setdefault(name, partition) != partition:
            self._violate(f"{name} has records in {self._partitions[name]} and {partition}")
        else:
            self._judge_number(partition, name, number)

    def _judge_number(self, partition: TopicPartition, name: str, number: int) -> None:
        expected = self.next_numbers.get(name, 0)
        passed = self._gaps.get(partition)
        if number > expected and (passed is None or name in passed):
            self._violate(f"records {expected} to {number - 1} of {name} are lost ({partition})")
        elif number < expected:
            self._violate(f"record {number} of {name} is in {partition} twice")
        if passed is not None:
            passed.add(name)
        self.next_numbers[name] = max(expected, number + 1)

    def _violate(self, text: str) -> None:
        self.violation_count += 1
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(text)


def missing_records(acknowledged: Mapping[str, int], seen: Mapping[str, int]) -> list[str]:
    """
    Return a sentence for each client with acknowledged records that a reader has not seen.

    Args:
        acknowledged: by client, the number of records that were acknowledged.
        seen: `next_numbers` of the reader.
    """
    return [
        f"records {seen.get(name, 0)} to {count - 1} of {name} are acknowledged and missing"
        for name, count in sorted(acknowledged.items())
        if seen.get(name, 0) < count
    ]
