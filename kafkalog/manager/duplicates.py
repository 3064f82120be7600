"""A partition that lies in two data directories: opened from neither, until one copy has gone.

Which copy is right only the operator knows, who moves the other one out of its data directory. That
is noticed when somebody asks for the partition again; what stays is opened then as at a start.

Crash points: none; nothing is written. What checkpoints say of the copy that has gone is forgotten
by their next writing, or by the next start.

Thread-safety: every method from any thread; the partition's lock is held.
"""

from __future__ import annotations

from kafkalog.errors import LogOfflineError
from kafkalog.files.names import partition_directory_name
from kafkalog.manager.creating import unregister_partition
from kafkalog.manager.directory import DataDirectory
from kafkalog.manager.opening import OPEN
from kafkalog.manager.registry import ManagedPartition, PartitionRegistry
from kafkalog.manager.supervision import FaultRegistry
from kafkalog.model import TopicPartition

__all__ = ["block_duplicate", "recheck_duplicate"]


def block_duplicate(
    partition: ManagedPartition, rival: DataDirectory, faults: FaultRegistry
) -> None:
    """Let a partition not be opened: another data directory has it too."""
    name = partition.topic_partition
    error = LogOfflineError(
        f"{name} lies in {partition.directory.path} and in {rival.path}: move one of the two out of"
        " its data directory, and ask for it again",
        path=rival.path / partition_directory_name(name),
    )
    partition.block(error, rival)
    faults.record_failure(OPEN, name, error)


def recheck_duplicate(
    partition: ManagedPartition, registry: PartitionRegistry, faults: FaultRegistry
) -> ManagedPartition:
    """
    Return the partition, or the copy that took its place; free if it is the only one now.

    Raises:
        UnknownTopicOrPartitionError: it was deleted meanwhile.
    """
    with partition.lock:
        name = partition.topic_partition
        if partition.is_gone:
            return registry.get(name)
        if not partition.is_duplicate:
            return partition
        copies = (partition.directory, *partition.rivals)
        left = [directory for directory in copies if _may_have(directory, name)]
        if len(left) != 1 or not left[0].is_online:
            return partition
        for directory in copies:
            if directory is not left[0]:
                unregister_partition(directory, name)
        faults.remove(name)
        if left[0] is partition.directory:
            partition.free()
            return partition
        partition.mark_gone()
        moved = ManagedPartition(name, left[0], partition.topic_id)
        registry.replace(partition, moved)
    return moved


def _may_have(directory: DataDirectory, name: TopicPartition) -> bool:
    if not directory.is_online:
        return True
    try:
        path = directory.path / partition_directory_name(name)
        return directory.filesystem.stat(path) is not None
    except OSError:
        return True
