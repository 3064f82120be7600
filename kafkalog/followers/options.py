"""Options of `follow`, and what a follower returns and reports.

Thread-safety: immutable values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, Unpack

from kafkalog._core.record import Record
from kafkalog.clients.consumer import LostRecords
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import CLUSTER_METADATA_TOPIC, ensure_topic_name
from kafkalog.log.isolation import Isolation, check_isolation
from kafkalog.log.reading import OnCorrupt
from kafkalog.model import TopicPartition

__all__ = [
    "FollowArguments",
    "FollowOptions",
    "FollowedRecords",
    "PartitionChange",
    "Start",
    "StartOffsets",
    "make_options",
]

StartOffsets: TypeAlias = Mapping[TopicPartition, "CommittedOffset | int"]
Start: TypeAlias = Literal["end", "start"] | StartOffsets

# Kafka's own topics are followed only if they are named.
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
_DAY_MS: Final = 86_400_000


class FollowedRecords(NamedTuple):
    """
    Consecutive records of a partition.

    Attributes:
        partition: the partition.
        records: its next records, at least one.
        next_offset: the position after them.
    """

    partition: TopicPartition
    records: list[Record]
    next_offset: int


class PartitionChange(NamedTuple):
    """
    A partition that appeared or disappeared.

    Attributes:
        partition: the partition.
        kind: "added" or "removed". A topic that was deleted and created again is removed, then
            added.
    """

    partition: TopicPartition
    kind: Literal["added", "removed"]


class FollowArguments(TypedDict, total=False):
    """Keyword arguments of `follow`; its docstring has their meaning."""

    partitions: Iterable[TopicPartition | tuple[str, int]] | None
    start: Start
    durable: bool
    isolation: Isolation
    on_corrupt: OnCorrupt
    on_lost: Callable[[LostRecords], object] | None
    on_partition: Callable[[PartitionChange], object] | None
    max_records: int
    max_bytes: int
    poll_interval_ms: int
    filesystem: FileSystem | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """Checked arguments of `follow`."""

    topics: frozenset[str] | None = None
    partitions: frozenset[TopicPartition] | None = None
    start: Start = "end"
    durable: bool = False
    isolation: Isolation = "read_uncommitted"
    on_corrupt: OnCorrupt = "raise"
    on_lost: Callable[[LostRecords], object] | None = None
    on_partition: Callable[[PartitionChange], object] | None = None
    max_records: int = 500
    max_bytes: int = 8 << 20
    poll_interval_ms: int = 100
    filesystem: FileSystem | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_isolation(self.isolation)
        if self.on_corrupt not in ("raise", "skip"):
            raise ValueError(f"on_corrupt must be 'raise' or 'skip', got {self.on_corrupt!r}")
        for name in ("max_records", "max_bytes", "poll_interval_ms"):
            number = getattr(self, name)
            if type(number) is not int or number < 1:
                raise ValueError(f"{name} must be an int of 1 or more, got {number!r}")
        if self.poll_interval_ms > _DAY_MS:
            raise ValueError(f"poll_interval_ms must be at most {_DAY_MS}, a day")
        if isinstance(self.start, str) and self.start not in ("end", "start"):
            raise ValueError(f"start must be 'end', 'start' or offsets, got {self.start!r}")

    def follows(self, partition: TopicPartition) -> bool:
        """Return whether a partition is to be followed."""
        if self.partitions is not None:
            return partition in self.partitions
        if self.topics is not None:
            return partition.topic in self.topics
        return partition.topic not in _INTERNAL and partition.topic != CLUSTER_METADATA_TOPIC

    def start_of(self, partition: TopicPartition) -> CommittedOffset | None:
        """Return the position that the caller gave for a partition; None if there is none."""
        if isinstance(self.start, str):
            return None
        offset = self.start.get(partition)
        return CommittedOffset(offset) if isinstance(offset, int) else offset


def make_options(
    topics: str | Iterable[str] | None, **arguments: Unpack[FollowArguments]
) -> FollowOptions:
    """
    Return checked options.

    Raises:
        ValueError: a value is out of its range, or both topics and partitions are named.
        TypeError: a name or an offset has another type.
    """
    partitions, start = arguments.get("partitions"), arguments.get("start", "end")
    if topics is not None and partitions is not None:
        raise ValueError("topics or partitions must be named, got both")
    chosen: dict[str, Any] = {**arguments, "topics": None, "partitions": None}
    if topics is not None:
        names = frozenset((topics,) if isinstance(topics, str) else topics)
        if not names:
            raise ValueError("topics must be at least one name, got none")
        for name in names:
            ensure_topic_name(name)
        chosen["topics"] = names
    if partitions is not None:
        chosen["partitions"] = frozenset(TopicPartition(*each) for each in partitions)
        if not chosen["partitions"]:
            raise ValueError("partitions must be at least one, got none")
    if not isinstance(start, str):
        chosen["start"] = _offsets_of(start)
    return FollowOptions(**chosen)


def _offsets_of(start: StartOffsets) -> StartOffsets:
    found: dict[TopicPartition, CommittedOffset] = {}
    for where, offset in start.items():
        position = CommittedOffset(offset) if isinstance(offset, int) else offset
        if not isinstance(position, CommittedOffset) or isinstance(offset, bool):
            raise TypeError(f"a start must be an int or a CommittedOffset, got {offset!r}")
        if position.offset < 0:
            raise ValueError(f"offset must be >= 0, got {position.offset}")
        found[TopicPartition(*where)] = position
    return found
