"""Topic ids: which partitions of a data directory belong to the topics of their names.

A topic that is deleted and made again has another id, and so has a topic of another cluster. Each
partition's id is in its `partition.metadata`; the id of a topic is that of its partitions in use,
else the one that `.kafkalog_topics` has, else the only one that is found.

| a partition found in a directory | is |
|---|---|
| of a topic that was deleted while its directory was away, or up to a crash | deleted |
| the same, and a broker had the topic since (`deletion_marks`) | in use: the deletion is over |
| of its topic's id, or without an id | in use |
| of another id | stray: served to nobody, left as it is, reported |
| one of several ids, none of which is known to be the topic's | stray, each of them |

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

# What the fault registry calls a `partition.metadata` that cannot be read.
METADATA = "partition.metadata"


@dataclass(slots=True)
class SortedPartitions:
    """
    What is to be done with partitions that were found.

    Attributes:
        live: those in use.
        deleted: those of topics that were deleted while they were away.
        strays: those of other topics of the same names.
        ids: topic -> id as text, of the topics of `live`.
        over: topic -> deletions of it that are over, since a broker had it after them.
    """

    live: list[ManagedPartition] = field(default_factory=list)
    deleted: list[ManagedPartition] = field(default_factory=list)
    strays: list[StrayPartition] = field(default_factory=list)
    ids: dict[str, str] = field(default_factory=dict)
    over: dict[str, list[Deletion]] = field(default_factory=dict)


def read_partitions(directory: DataDirectory, faults: FaultRegistry) -> list[ManagedPartition]:
    """
    Return the partitions of a directory that was opened, with their topic ids.

    A file that is damaged is a fault of its partition, which counts as one without an id.

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
    Decide what partitions are that were found.

    Args:
        found: they, of one or several directories.
        registry: the partitions in use.
        noted: the topic ids in `.kafkalog_topics`.
        deleting: the topics that were deleted, by name.
        marks: of the partitions of these topics.
        all_read: whether every data directory has been read: nothing else can turn up.
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
    for stray in result.strays:
        logger.error("%s", stray_error(stray))
    return result


def _find_over(
    found: Sequence[ManagedPartition],
    deleting: Mapping[str, tuple[Deletion, ...]],
    marks: Mapping[ManagedPartition, PartitionMark],
) -> dict[str, list[Deletion]]:
    """Return the deletions that a broker did not know of when it had their topics, by topic."""
    over: dict[str, list[Deletion]] = defaultdict(list)
    for each in found:
        name = each.topic_partition
        for note in deleting.get(name.topic, ()):
            if not _is_of(note, each) or note in over[name.topic]:
                continue
            if not note.fits(name.partition, each.directory.keys, marks[each]):
                logger.warning(
                    "the deletion of topic %s was cut short, and the topic was used since, as by a"
                    " broker: %s is not what was to be deleted; the topic stays, delete it again",
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
    """Return the id of a topic of which these ids are found; None where that is not known."""
    if used is not None:
        return used
    for each in ids:
        if format_id(each) == noted:
            return each
    # Made again by a broker since, unless the rest of the topic is in a directory that is away.
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
    """Return the error for a call that names a stray partition."""
    topic = stray.topic_partition.topic
    wanted = (
        f"the id of topic {topic} is {stray.expected_id}"
        if stray.expected_id is not None
        else f"which id topic {topic} has is not known"
    )
    return InconsistentTopicIdError(
        f"{stray.path} is stray: its topic id is {stray.topic_id or 'not there'}, and {wanted};"
        " it is left as it is: move it out of the data directory, or those that contradict it",
        path=stray.path,
    )
