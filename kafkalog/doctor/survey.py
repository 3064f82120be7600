"""Survey of a data directory, or of a standalone partition directory.

Nothing is opened for writing and no lock is taken, so a writer may run at the same time: files that
disappear between two reads are left out. Of a log only its last segment is read, from the last
entry of its offset index on; no checksum is verified.

Thread-safety: a survey is immutable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from kafkalog._core.batch import scan_batches
from kafkalog.clock import Clock
from kafkalog.config import LogConfig
from kafkalog.errors import (
    CorruptRecordError,
    CorruptStateError,
    InvalidRecordError,
    KafkaLogError,
    LogStorageError,
    NotALogError,
)
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileFacts, FileSystem
from kafkalog.files.names import (
    CLUSTER_METADATA_TOPIC,
    DATA_DIRECTORY_FILES,
    LEADER_EPOCH_CHECKPOINT,
    LOCK_FILE,
    META_PROPERTIES,
    MOVE_NOTE,
    OFFSET_CHECKPOINTS,
    PARTITION_METADATA,
    TOPIC_OVERRIDES,
    DirectoryState,
    FileKind,
    FileState,
    PartitionDirectory,
    SegmentFileName,
    try_parse_partition_directory,
    try_parse_segment_file,
)
from kafkalog.log.partition_paths import find_partition_paths
from kafkalog.log.segment import open_segment
from kafkalog.log.segment_types import make_context
from kafkalog.manager.move_notes import MoveNote, read_note
from kafkalog.manager.overrides import SavedOverrides, read_overrides
from kafkalog.model import TopicPartition
from kafkalog.state.checkpoints import LeaderEpochCheckpoint, OffsetCheckpoint
from kafkalog.state.meta_properties import MetaProperties, read_meta_properties
from kafkalog.state.partition_metadata import read_partition_metadata
from kafkalog.state.shutdown_marker import read_shutdown_marker

__all__ = [
    "LOST_AND_FOUND",
    "DirectorySurvey",
    "PartitionSurvey",
    "survey_directory",
]

# Made by the file system in its topmost directory.
LOST_AND_FOUND: Final = "lost+found"

# The log end offset does not depend on the settings; making them takes as long as finding it.
_SETTINGS: Final = LogConfig()

_Read = TypeVar("_Read")


@dataclass(frozen=True, slots=True)
class PartitionSurvey:
    """
    A partition directory.

    Attributes:
        path: its path.
        name: its parsed name.
        files: all its files.
        segments: the parsed names of its segments' files, in every state.
        log_end_offset: one past the last batch by the headers; None if they do not show it.
        topic_id: the id in `partition.metadata`, None if the file is missing or damaged.
        problems: its files that cannot be used, with the reason.
        is_link: True if it is a symbolic link in a data directory.
    """

    path: Path
    name: PartitionDirectory
    files: Mapping[str, FileFacts] = field(default_factory=dict)
    segments: Mapping[str, SegmentFileName] = field(default_factory=dict)
    log_end_offset: int | None = None
    topic_id: UUID | None = None
    problems: dict[Path, str] = field(default_factory=dict)
    is_link: bool = False

    @property
    def is_live(self) -> bool:
        """True if it is neither deleted nor stray nor being moved."""
        return self.name.state is DirectoryState.LIVE

    def in_state(self, state: FileState) -> list[Path]:
        """Return the paths of the segment files in one state."""
        return [self.path / name for name, parsed in self.segments.items() if parsed.state is state]

    def live_sizes(self, kind: FileKind = FileKind.LOG) -> dict[int, int]:
        """Return base offset and size of each live file of one kind, ascending."""
        return {
            parsed.base_offset: self.files[name].size_bytes
            for name, parsed in self.segments.items()
            if parsed.kind is kind and parsed.state is FileState.LIVE
        }

    @property
    def size_bytes(self) -> int:
        """Total size of its files."""
        return sum(facts.size_bytes for facts in self.files.values())


@dataclass(frozen=True, slots=True)
class DirectorySurvey:
    """
    A data directory, or a standalone partition directory.

    Attributes:
        path: its path.
        state_directory: the directory of checkpoints, marker and lock: the same, or for a partition
            of a data directory the data directory.
        is_partition: True if it is a partition directory itself.
        files: its files and directories that are no partition directories.
        partitions: its partition directories.
        meta: the content of `meta.properties`, None without one.
        checkpoints: the content of each undamaged checkpoint.
        overrides: the content of `.kafkalog_topics`, None without one.
        has_marker: True if the last writer closed everything cleanly.
        lock_holder: the process that holds the lock, None if there is none or it is unknown.
        problems: files that cannot be used, with the reason.
        moves: notes of partitions that move to or from it, by their paths.
    """

    path: Path
    state_directory: Path
    is_partition: bool
    files: Mapping[str, FileFacts] = field(default_factory=dict)
    partitions: tuple[PartitionSurvey, ...] = ()
    meta: MetaProperties | None = None
    checkpoints: dict[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    overrides: SavedOverrides | None = None
    has_marker: bool = False
    lock_holder: int | None = None
    problems: dict[Path, str] = field(default_factory=dict)
    moves: dict[Path, MoveNote] = field(default_factory=dict)

    def live(self) -> Iterator[PartitionSurvey]:
        """Yield the partitions that are neither deleted nor stray nor being moved."""
        return (partition for partition in self.partitions if partition.is_live)

    def checkpointed(self, name: str, partition: PartitionSurvey) -> int | None:
        """Return the entry of a checkpoint for a partition, None without one."""
        return self.checkpoints.get(name, {}).get(partition.name.topic_partition)


def survey_directory(filesystem: FileSystem, directory: Path, clock: Clock) -> DirectorySurvey:
    """
    Survey a data directory, or a partition directory.

    A partition of a data directory is surveyed alone, with the checkpoints of the data directory.

    Raises:
        NotALogError: the path is missing, or neither of the two.
        LogStorageError: the directory itself cannot be read.
    """
    with storage_errors(directory, doing="examining"):
        facts = filesystem.stat(directory)
        if facts is None or not facts.is_directory:
            raise NotALogError(f"not a directory: {directory}", path=directory)
        names = filesystem.list(directory)
    if not _is_partition(directory, names):
        files, partitions = _survey_names(filesystem, directory, names, clock)
        return _read_state(
            filesystem,
            DirectorySurvey(
                directory, directory, is_partition=False, files=files, partitions=partitions
            ),
        )
    paths = find_partition_paths(filesystem, directory)
    name = try_parse_partition_directory(directory.name)
    name = PartitionDirectory(paths.topic_partition) if name is None else name
    is_link = not paths.is_standalone and filesystem.is_link(directory)
    partition = _survey_partition(filesystem, directory, name, clock, is_link=is_link)
    return _read_state(
        filesystem,
        DirectorySurvey(
            directory, paths.state_directory, is_partition=True, partitions=(partition,)
        ),
    )


def _is_partition(directory: Path, names: list[str]) -> bool:
    """Return True for a partition directory, False for a data directory; else NotALogError."""
    if any(try_parse_segment_file(name) is not None for name in names):
        return True
    if any(name in DATA_DIRECTORY_FILES for name in names):
        return False
    if any(try_parse_partition_directory(name) is not None for name in names):
        return False
    if try_parse_partition_directory(directory.name) is not None:
        return True
    if set(names) <= {LOCK_FILE, LOST_AND_FOUND}:
        return False
    raise NotALogError(
        f"{directory} is neither a data directory nor a log: no segment file, no partition"
        f" directory, but {names[0]!r} and {len(names) - 1} others",
        path=directory,
    )


def _survey_names(
    filesystem: FileSystem, directory: Path, names: list[str], clock: Clock
) -> tuple[dict[str, FileFacts], tuple[PartitionSurvey, ...]]:
    """Return the partition directories of a data directory, and its other entries."""
    files, partitions = {}, []
    for name in names:
        path = directory / name
        facts = filesystem.stat(path)
        if facts is None:
            continue
        parsed = try_parse_partition_directory(name) if facts.is_directory else None
        if parsed is None:
            files[name] = facts
        else:
            is_link = filesystem.is_link(path)
            partitions.append(_survey_partition(filesystem, path, parsed, clock, is_link=is_link))
    return files, tuple(partitions)


def _survey_partition(
    filesystem: FileSystem,
    directory: Path,
    name: PartitionDirectory,
    clock: Clock,
    *,
    is_link: bool,
) -> PartitionSurvey:
    problems: dict[Path, str] = {}
    try:
        with storage_errors(directory, doing="reading"):
            listed = {
                each: filesystem.stat(directory / each) for each in filesystem.list(directory)
            }
    except LogStorageError as error:
        problems[directory] = str(error)
        return PartitionSurvey(directory, name, problems=problems, is_link=is_link)
    files = {each: facts for each, facts in listed.items() if facts is not None}
    parsed = {each: try_parse_segment_file(each) for each in files}
    segments = {each: parts for each, parts in parsed.items() if parts is not None}
    epochs = LeaderEpochCheckpoint(filesystem, directory / LEADER_EPOCH_CHECKPOINT)
    _try_read(partial(epochs.read, rising=False), epochs.path, problems)
    read_id = partial(read_partition_metadata, filesystem, directory)
    topic_id = _try_read(read_id, directory / PARTITION_METADATA, problems)
    found = PartitionSurvey(
        directory, name, files, segments, topic_id=topic_id, problems=problems, is_link=is_link
    )
    # A metadata log is the controller's, and nothing here opens it.
    if not found.is_live or name.topic_partition.topic == CLUSTER_METADATA_TOPIC:
        return found
    return replace(found, log_end_offset=_try_log_end(filesystem, found, clock, problems))


def _try_read(read: Callable[[], _Read], path: Path, problems: dict[Path, str]) -> _Read | None:
    """Return what `read` returns; None, and an entry in `problems`, if the file cannot be used."""
    try:
        return read()
    except (CorruptStateError, LogStorageError) as error:
        problems[path] = str(error)
        return None


def _try_log_end(
    filesystem: FileSystem, found: PartitionSurvey, clock: Clock, problems: dict[Path, str]
) -> int | None:
    """Return the log end offset, found without a recovery; None, perhaps with a problem, else."""
    bases = found.live_sizes()
    if not bases:
        return None
    context = make_context(filesystem, found.path, _SETTINGS, clock, read_only=True)
    try:
        with storage_errors(found.path, doing="reading"):
            segment = open_segment(context, max(bases))
            if segment.size_bytes == 0:
                return segment.base_offset
            return scan_batches(
                segment.file.whole(),
                segment.tail_position(),
                next_offset=segment.base_offset,
                check_crc=False,
            ).next_offset
    except (CorruptRecordError, InvalidRecordError):
        return None  # a recovery finds the end of a damaged log
    except KafkaLogError as error:
        problems[found.path] = str(error)
        return None
    finally:
        context.pool.close()


def _read_state(filesystem: FileSystem, found: DirectorySurvey) -> DirectorySurvey:
    """Return a survey with the state files of the directory."""
    directory, problems = found.state_directory, dict(found.problems)
    read_meta = partial(read_meta_properties, filesystem, directory)
    meta = _try_read(read_meta, directory / META_PROPERTIES, problems)
    read_saved = partial(read_overrides, filesystem, directory)
    overrides = _try_read(read_saved, directory / TOPIC_OVERRIDES, problems)
    checkpoints: dict[str, Mapping[TopicPartition, int]] = {}
    for name in OFFSET_CHECKPOINTS:
        path = directory / name
        if filesystem.stat(path) is None:
            continue
        offsets = _try_read(OffsetCheckpoint(filesystem, path).read, path, problems)
        if offsets is not None:
            checkpoints[name] = offsets
    has_marker = False
    try:
        has_marker = read_shutdown_marker(filesystem, directory) is not None
    except LogStorageError as error:
        problems[directory] = str(error)
    moves = _read_move_notes(filesystem, found, problems)
    return replace(
        found,
        meta=meta,
        checkpoints=checkpoints,
        overrides=overrides,
        has_marker=has_marker,
        lock_holder=filesystem.lock_holder(directory / LOCK_FILE),
        problems=problems,
        moves=moves,
    )


def _read_move_notes(
    filesystem: FileSystem, found: DirectorySurvey, problems: dict[Path, str]
) -> dict[Path, MoveNote]:
    moves = {}
    for path in (found.path / name for name in found.files if name.startswith(MOVE_NOTE)):
        try:
            note = read_note(filesystem, path)
        except OSError as error:
            problems[path] = f"{path}: {error.strerror or error}"
            continue
        if note is not None:
            moves[path] = note
    return moves
