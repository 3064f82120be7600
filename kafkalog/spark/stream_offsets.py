"""The offsets of a stream as Spark keeps them: JSON like that of Spark's own Kafka source.

    {"orders": {"0": 123, "1": 45}}         the next offset of each partition

The JSON of a checkpoint can be pasted into `startingOffsets`. If the directories have the ids of
topics there is one more entry, whose name no topic can have: it shows a topic that was deleted and
created again, whose offsets may look alike.

    {"orders": {"0": 123}, "#topic_ids": {"orders": "AAECAwQFBgcICQoLDA0ODw"}}

In memory offsets are columns, since a stream may have a hundred thousand partitions and needs its
offsets several times a second.

Thread-safety: immutable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from kafkalog.spark.options import TOPIC_IDS

__all__ = ["NO_OFFSET", "OffsetJson", "PartitionOffsets", "topic_ids_of"]

OffsetJson: TypeAlias = dict[str, dict[str, Any]]
Int64Array: TypeAlias = npt.NDArray[np.int64]

NO_OFFSET: Final = -1


class PartitionOffsets:
    """
    Partitions in the order of the columns: by topic, and then by number.

    Args:
        names: topic and number of each, in that order.
    """

    def __init__(self, names: Sequence[tuple[str, int]]) -> None:
        self.names = list(names)
        self._present = frozenset(self.names)
        self._keys = {
            topic: [str(number) for _topic, number in of_topic]
            for topic, of_topic in groupby(self.names, lambda name: name[0])
        }

    def __len__(self) -> int:
        return len(self.names)

    def has(self, topic: str, partition: int) -> bool:
        """Return True if a partition is among them."""
        return (topic, partition) in self._present

    def to_json(
        self, offsets: Int64Array, ids: Mapping[str, str], chosen: npt.NDArray[np.bool_] | None
    ) -> OffsetJson:
        """
        Return offsets as JSON.

        Args:
            offsets: int64 of shape (p,).
            ids: of the topics that have one.
            chosen: partitions to include, bool of shape (p,); None for all.
        """
        values, first = offsets.tolist(), 0
        marks = None if chosen is None or chosen.all() else chosen.tolist()
        found: OffsetJson = {}
        for topic, keys in self._keys.items():
            stop = first + len(keys)
            pairs = zip(keys, values[first:stop], strict=True)
            if marks is None:
                found[topic] = dict(pairs)
            else:
                of_topic = zip(pairs, marks[first:stop], strict=True)
                kept = {key: value for (key, value), mark in of_topic if mark}
                if kept:
                    found[topic] = kept
            first = stop
        topic_ids = {topic: ids[topic] for topic in found if topic in ids}
        if topic_ids:
            found[TOPIC_IDS] = topic_ids
        return found

    def from_json(self, offsets: OffsetJson) -> tuple[Int64Array, list[tuple[str, int]]]:
        """
        Return the offset of each partition, NO_OFFSET without one, and partitions not known here.
        """
        found = np.full(len(self.names), NO_OFFSET, np.int64)
        foreign: list[tuple[str, int]] = []
        first = 0
        for topic, keys in self._keys.items():
            of_topic = offsets.get(topic)
            stop = first + len(keys)
            if of_topic is not None:
                if list(of_topic) == keys:
                    found[first:stop] = list(of_topic.values())
                else:
                    found[first:stop] = [of_topic.get(key, NO_OFFSET) for key in keys]
                    own_keys = set(keys)
                    foreign += [(topic, int(key)) for key in of_topic if key not in own_keys]
            first = stop
        for topic in offsets.keys() - self._keys.keys() - {TOPIC_IDS}:
            foreign += [(topic, int(key)) for key in offsets[topic]]
        return found, sorted(foreign)


def topic_ids_of(offsets: OffsetJson) -> Mapping[str, str]:
    """Return the ids of topics in offsets."""
    return offsets.get(TOPIC_IDS, {})
