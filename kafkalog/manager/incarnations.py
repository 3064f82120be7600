"""Classification of partitions by topic id: in use, deleted or stray.

A topic that is deleted and created again has another id, and so has a topic of another cluster. The
id of a partition is in its `partition.metadata`. The id of a topic is that of its partitions in
use, else the id in `.kafkalog_topics`, else the only id that is found.

| partition in a directory | result |
|---|---|
| its topic was deleted while the directory was offline, or before a crash | deleted |
| the same, and a broker used the topic since (`deletion_marks`) | in use; the deletion ends |
| it has the id of its topic, or no id | in use |
| it has another id | stray: not served, not changed, reported |
| several ids are found, and the topic's id is not known | stray, each partition |

Thread-safety: pure functions over the disk; the manager's lock is held.
"""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafkalog.errors import CorruptStateError, InconsistentTopicIdError, LogStorageError
from kafkalog.files.names import partition_directory_name
from kafkalog.manager.deletion_marks import PartitionMark
from kafkalog.manager.directory import DataDirectory, is_failure_of_disk
from kafkalog.manager.health import StrayPartition
from kafkalog.manager.overrides import Deletion
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.state.kafka_uuid import format_id
from kafkalog.state.partition_metadata import read_partition_metadata

__all__ = ["METADATA", "SortedPartitions", "read_partitions", "sort_partitions", "stray_error"]

logger = logging.getLogger(__name__)

# Name of the fault of a `partition.metadata` that cannot be read.
METADATA = "partition.metadata"


@dataclass(slots=True)
class SortedPartitions:
    """
    Classified partitions.

    Attributes:
        live: partitions in use.
        deleted: partitions whose topics were deleted while their directories were offline.
        strays: partitions of other topics of the same names.
        ids: topic -> id as text, of the topics of `live`.
        over: topic -> deletions that ended because a broker used the topic after them.
    """

    live: list[ManagedPartition] = field(default_factory=list)
    deleted: list[ManagedPartition] = field(default_factory=list)
    strays: list[StrayPartition] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    over: dict[str, list[Deletion]] = field(default_factory=dict)


def read_partitions(directory: DataDirectory, faults: FaultRegistry) -> list[ManagedPartition]:
    """
    Return the partitions of a directory that was opened, with their topic ids.

    A damaged file is a fault of its partition, which then counts as a partition without an id.

    Raises:
        LogStorageError: the disk has failed.
    """
    found = []
    for name, partition in directory.inventory.partitions.items():
        topic_id = None
        try:
            topic_id = read_partition_metadata(directory.filesystem, directory.path / name)
        except (CorruptStateError, LogStorageError) as error:
            if is_failure_of_disk(error):
                raise
            faults.record_failure(METADATA, partition, error)
        found.append(ManagedPartition(partition, directory, topic_id))
    return found


def sort_partitions(
    found: Sequence[ManagedPartition],
    registry: PartitionRegistry,
    noted: Mapping[str, str],
    deleting: Mapping[str, tuple[Deletion, ...]],
    marks: Mapping[ManagedPartition, PartitionMark],
    *,
    all_read: bool,
) -> SortedPartitions:
    """
    Classify partitions.

    Args:
        found: partitions of one or several directories.
        registry: the partitions in use.
        noted: the topic ids in `.kafkalog_topics`.
        deleting: deletions of topics, by name.
        marks: marks of the partitions of these topics.
        all_read: whether every data directory has been read, so that no partition is unknown.
    """
    result = SortedPartitions(over=_find_over(found, deleting, marks))
    by_topic: dict[str, list[ManagedPartition]] = defaultdict(list)
    for each in found:
        topic = each.topic_partition.topic
        over = result.over.get(topic, ())
        notes = [note for note in deleting.get(topic, ()) if note not in over]
        if any(_is_of(note, each) for note in notes):
            result.deleted.append(each)
        else:
            by_topic[topic].append(each)
    for topic, partitions in by_topic.items():
        ids = {each.topic_id for each in partitions if each.topic_id is not None}
        own = _id_of(ids, registry.topic_id(topic), noted.get(topic), all_read=all_read)
        for each in partitions:
            if own is None and ids:
                result.strays.append(_stray(each, None))
            elif each.topic_id not in (None, own):
                result.strays.append(_stray(each, own))
            else:
                result.live.append(each)
        if own is not None and ids:
            result.ids[topic] = format_id(own)
    return result


def _find_over(
    found: Sequence[ManagedPartition],
    deleting: Mapping[str, tuple[Deletion, ...]],
    marks: Mapping[ManagedPartition, PartitionMark],
) -> dict[str, list[Deletion]]:
    """Return the deletions whose topics a broker has used since, by topic."""
    over: dict[str, list[Deletion]] = defaultdict(list)
    for each in found:
        name = each.topic_partition
        for note in deleting.get(name.topic, ()):
            if not _is_of(note, each) or note in over[name.topic]:
                continue
            if not note.fits(name.partition, each.directory.keys, marks[each]):
                logger.warning(
                    "the deletion of topic %s was interrupted, and the topic was used since, as by"
                    " a broker: %s has changed; the topic stays, delete it again",
                    name.topic,
                    each.directory.path / partition_directory_name(name),
                )
                over[name.topic].append(note)
    return {topic: notes for topic, notes in over.items() if notes}


def _is_of(note: Deletion, partition: ManagedPartition) -> bool:
    text = None if partition.topic_id is None else format_id(partition.topic_id)
    return note.is_of(text, partition.directory.keys)


def _id_of(
    ids: set[uuid.UUID], used: uuid.UUID | None, noted: str | None, *, all_read: bool
) -> uuid.UUID | None:
    """Return the id of a topic, given the ids of its partitions; None if it is not known."""
    if used is not None:
        return used
    for each in ids:
        if format_id(each) == noted:
            return each
    # A broker may have created the topic again, unless other partitions are in an unread directory.
    return next(iter(ids)) if len(ids) == 1 and (noted is None or all_read) else None


def _stray(partition: ManagedPartition, own: uuid.UUID | None) -> StrayPartition:
    name = partition.topic_partition
    return StrayPartition(
        name,
        partition.directory.path / partition_directory_name(name),
        None if partition.topic_id is None else format_id(partition.topic_id),
        None if own is None else format_id(own),
    )


def stray_error(stray: StrayPartition) -> InconsistentTopicIdError:
    """Return the error of a call for a stray partition."""
    topic = stray.topic_partition.topic
    reason = (
        f"the id of topic {topic} is {stray.expected_id}"
        if stray.expected_id is not None
        else f"the id of topic {topic} is not known"
    )
    return InconsistentTopicIdError(
        f"{stray.path} is stray: its topic id is {stray.topic_id or 'missing'}, and {reason}; it is"
        " not changed: move it, or the partitions that contradict it, out of the data directory",
        path=stray.path,
    )
