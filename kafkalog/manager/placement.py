"""Which names topics may have, and where a new partition goes.

A topic's name is legal as in Kafka, and differs from every other one in more than '.' against '_':
names of metrics have '_' for both. A partition goes to the online directory that has the fewest.

Thread-safety: pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kafkalog.errors import InvalidTopicError
from kafkalog.files.names import CLUSTER_METADATA_TOPIC, ensure_topic_name, topics_collide
from kafkalog.manager.directory import DataDirectory

__all__ = ["by_partition_count", "ensure_new_topic_name"]


def ensure_new_topic_name(topic: str, topics: Iterable[str]) -> None:
    """
    Raise unless a topic may be created beside others, itself perhaps among them.

    Raises:
        InvalidTopicError: the name breaks a rule, is a broker's own, or collides with another one.
    """
    try:
        ensure_topic_name(topic)
    except ValueError as error:
        raise InvalidTopicError(str(error)) from error
    if topic == CLUSTER_METADATA_TOPIC:
        raise InvalidTopicError(f"{topic} is the log of a controller, no topic")
    for other in topics:
        if other != topic and topics_collide(topic, other):
            raise InvalidTopicError(f"topic {topic!r} collides with {other!r}: '.' counts as '_'")


def by_partition_count(
    directories: Sequence[DataDirectory], counts: Mapping[DataDirectory, int]
) -> list[DataDirectory]:
    """Return the online directories, those with fewer partitions first, else in their order."""
    online = [directory for directory in directories if directory.is_online]
    return sorted(online, key=lambda directory: counts.get(directory, 0))
