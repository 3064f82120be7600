"""List of the partition directories in the directories of a query.

A directory is a data directory, whose partitions are its subdirectories, or a partition directory.
Left out are deleted (`-delete`), stray and future (`-future`) ones, a controller's metadata log,
and Kafka's internal topics, unless the options or the path name one.

Thread-safety: functions over the disk; partitions may appear and disappear at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kafkalog.errors import CorruptStateError, KafkaLogError, NotALogError
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import (
    CLUSTER_METADATA_TOPIC,
    DATA_DIRECTORY_FILES,
    LOG_START_OFFSET_CHECKPOINT,
    DirectoryState,
    try_parse_partition_directory,
    try_parse_segment_file,
)
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.model import TopicPartition
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError, of_engine
from kafkalog.spark.options import TopicSelection
from kafkalog.state.checkpoints import OffsetCheckpoint

__all__ = ["INTERNAL_TOPICS", "FoundPartition", "list_partitions", "read_log_starts"]

# A consumer that subscribes by a pattern does not get these either.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


@dataclass(frozen=True, slots=True)
class FoundPartition:
    """
    A partition directory.

    Attributes:
        topic, partition: its name.
        directory: its path.
        state_directory: the directory of its checkpoints.
    """

    topic: str
    partition: int
    directory: str
    state_directory: str


def list_partitions(
    filesystem: FileSystem, paths: tuple[str, ...], selection: TopicSelection
) -> list[FoundPartition]:
    """
    Return the selected partitions, by topic and number.

    Raises:
        KafkaLogSparkError: PATH_NOT_FOUND; OPTION_CONFLICT if a partition is in two of them;
            STORAGE.
    """
    found: dict[tuple[str, int], FoundPartition] = {}
    matches_topic: dict[str, bool] = {}
    for path in dict.fromkeys(str(Path(each).absolute()) for each in paths):
        for each in _partitions_in(filesystem, Path(path)):
            if each.topic not in matches_topic:
                matches_topic[each.topic] = _matches_topic(selection, each.topic)
            is_named = each.directory == path and selection.matches_topic(each.topic)
            if not matches_topic[each.topic] and not is_named:
                continue
            if selection.kind == "assign" and not selection.takes(each.topic, each.partition):
                continue
            other = found.setdefault((each.topic, each.partition), each)
            if other is not each and other.directory != each.directory:
                raise KafkaLogSparkError(
                    ErrorCode.OPTION_CONFLICT,
                    f"{each.topic}-{each.partition} is in {other.directory} and in"
                    f" {each.directory}: one of them has to be left out",
                    directories=[other.directory, each.directory],
                )
    return [found[key] for key in sorted(found)]


def _matches_topic(selection: TopicSelection, topic: str) -> bool:
    is_hidden = topic in INTERNAL_TOPICS and selection.kind in ("all", "pattern")
    return selection.matches_topic(topic) and (selection.has_internal or not is_hidden)


def _partitions_in(filesystem: FileSystem, path: Path) -> Iterator[FoundPartition]:
    try:
        with storage_errors(path, doing="listing"):
            facts = filesystem.stat(path)
            if facts is None or not facts.is_directory:
                reason = "does not exist" if facts is None else "is not a directory"
                raise KafkaLogSparkError(
                    ErrorCode.PATH_NOT_FOUND, f"{path} {reason}", path=str(path)
                )
            names = filesystem.list(path)
            if _is_partition(path, names):
                paths = find_partition_paths(filesystem, path)
                topic, partition = paths.topic_partition
                yield FoundPartition(topic, partition, str(path), str(paths.state_directory))
                return
    except KafkaLogError as error:
        raise of_engine(error) from error
    root = str(path)
    for name in names:
        parsed = try_parse_partition_directory(name)
        if parsed is None or parsed.state is not DirectoryState.LIVE:
            continue
        topic, partition = parsed.topic_partition
        if topic != CLUSTER_METADATA_TOPIC:
            yield FoundPartition(topic, partition, f"{root}/{name}", root)


def _is_partition(path: Path, names: list[str]) -> bool:
    """Return True for a partition directory, False for a data directory; else NotALogError."""
    if any(try_parse_segment_file(name) is not None for name in names):
        return True
    if any(name in DATA_DIRECTORY_FILES for name in names) or not names:
        return False
    if any(try_parse_partition_directory(name) is not None for name in names):
        return False
    if all(name.startswith((".", "_")) or name == "lost+found" for name in names):
        return False
    raise NotALogError(
        f"{path} is neither a data directory nor a partition directory: no segment file, no"
        f" partition directory, but {names[0]!r} and {len(names) - 1} others",
        path=path,
    )


def read_log_starts(
    filesystem: FileSystem, state_directories: Iterable[str]
) -> Mapping[tuple[str, TopicPartition], int]:
    """
    Return the checkpointed log start offsets, by state directory and partition.

    A damaged checkpoint has no entries, as for the engine.

    Raises:
        KafkaLogSparkError: STORAGE.
    """
    starts: dict[tuple[str, TopicPartition], int] = {}
    for directory in state_directories:
        path = Path(directory) / LOG_START_OFFSET_CHECKPOINT
        try:
            read = OffsetCheckpoint(filesystem, path).read()
        except CorruptStateError:
            continue
        except KafkaLogError as error:
            raise of_engine(error) from error
        starts |= {(directory, partition): offset for partition, offset in read.items()}
    return starts
