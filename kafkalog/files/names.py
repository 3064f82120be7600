"""Grammar of file and directory names: the only module that builds and parses them.

    00000000000000005000.log            segment that begins at offset 5000 (20 ASCII digits)
    00000000000000005000.index          its offset index; .timeindex .txnindex likewise
    00000000000000005000.snapshot       producer state as of (exclusive) offset 5000
    00000000000000005000.log.deleted    any of them in a state: .deleted .cleaned .swap .tmp
    00000000000000005000.log.covered    marks a segment that other segments replaced
    00000000000000005000.log.broken     bytes that recovery cut from that file; with the position
    00000000000000005000.log.817.broken   at which they were cut
    orders-eu-0                         directory of partition 0 of topic orders-eu
    orders-eu-0.<32 hex>-delete         the same, to be deleted; also -stray and -future

Invariants: parsing and building are inverse to each other on every name that is accepted; a name
that this module does not build is not parsed. In particular only exactly 20 digits are an offset,
only lower-case hex digits an id, only the shortest decimal form a partition number.

Thread-safety: pure functions and frozen values. This module never touches a disk.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog.errors import NotALogError
from kafkalog.model import TopicPartition

__all__ = [
    "CLEANER_OFFSET_CHECKPOINT",
    "CLEAN_SHUTDOWN_MARKER",
    "CLUSTER_METADATA_TOPIC",
    "COMMIT_JOURNAL",
    "DATA_DIRECTORY_FILES",
    "DURABLE_OFFSETS",
    "HIGH_WATERMARK_CHECKPOINT",
    "LEADER_EPOCH_CHECKPOINT",
    "LOCK_FILE",
    "LOG_START_OFFSET_CHECKPOINT",
    "MAX_BASE_OFFSET",
    "MAX_NAME_SIZE",
    "MAX_OFFSET",
    "MAX_TOPIC_SIZE",
    "META_PROPERTIES",
    "MOVE_NOTE",
    "OFFSET_CHECKPOINTS",
    "OFFSET_DIGITS",
    "PARTITION_METADATA",
    "RECOVERY_POINT_CHECKPOINT",
    "REMOTE_INDEX_CACHE",
    "SESSION_NOTE",
    "SYNC_JOURNAL",
    "TOPIC_OVERRIDES",
    "DirectoryState",
    "FileKind",
    "FileState",
    "PartitionDirectory",
    "SegmentFileName",
    "SegmentFiles",
    "ensure_topic_name",
    "is_misnamed_segment",
    "is_topic_name",
    "live_base_offset",
    "parse_partition_directory",
    "parse_segment_file",
    "partition_directory_name",
    "segment_file_name",
    "temporary_path",
    "topics_collide",
    "try_parse_partition_directory",
    "try_parse_segment_file",
]

OFFSET_DIGITS: Final = 20
MAX_OFFSET: Final = 2**63 - 1
# Of a segment; base offset plus any 32-bit relative offset is a valid offset.
MAX_BASE_OFFSET: Final = MAX_OFFSET - (2**31 - 1)
MAX_PARTITION: Final = 2**31 - 1
MAX_NAME_SIZE: Final = 255
MAX_TOPIC_SIZE: Final = 249

# In a data directory.
LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_MARKER: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
SESSION_NOTE: Final = ".kafkalog_session"  # of kafkalog only; a broker ignores it
TOPIC_OVERRIDES: Final = ".kafkalog_topics"  # of kafkalog only; a broker ignores it
COMMIT_JOURNAL: Final = ".kafkalog_journal."  # of kafkalog only, followed by a number

# In the directory of a writer's lock; of kafkalog only, a broker ignores it.
DURABLE_OFFSETS: Final = ".kafkalog_live"

# In a partition directory.
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
SYNC_JOURNAL: Final = ".kafkalog_syncs"  # of kafkalog only; a broker ignores it
MOVE_NOTE: Final = ".kafkalog_move."  # of kafkalog only, followed by an id; a broker ignores it

OFFSET_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
# Any of these files identifies a data directory, as opposed to a standalone partition directory.
DATA_DIRECTORY_FILES: Final = (META_PROPERTIES, *OFFSET_CHECKPOINTS, CLEAN_SHUTDOWN_MARKER)

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"


class FileKind(StrEnum):
    """Kind of a segment file; the value is the suffix."""

    LOG = ".log"
    OFFSET_INDEX = ".index"
    TIME_INDEX = ".timeindex"
    TRANSACTION_INDEX = ".txnindex"
    SNAPSHOT = ".snapshot"


class FileState(StrEnum):
    """State of a segment file; the value is the suffix that follows the suffix of the kind."""

    LIVE = ""
    DELETED = ".deleted"  # to be deleted, readers may still use it; removed at load
    CLEANED = ".cleaned"  # output of compaction or of a split, incomplete; removed at load
    SWAP = ".swap"  # the same, complete, before the rename to the final name
    COVERED = ".covered"  # marks an old segment that a lower new one replaces; of kafkalog only
    TEMPORARY = ".tmp"  # written next to the final name, before the rename
    BROKEN = ".broken"  # bytes that recovery truncated and kept


class DirectoryState(StrEnum):
    """State of a partition directory; the value is the suffix."""

    LIVE = ""
    DELETE = "-delete"
    FUTURE = "-future"
    STRAY = "-stray"


def _alternatives(kinds: type[StrEnum]) -> str:
    return "|".join(re.escape(kind.value) for kind in kinds if kind.value)


_SEGMENT_FILE = re.compile(
    rf"(?P<offset>[0-9]{{{OFFSET_DIGITS}}})(?P<kind>{_alternatives(FileKind)})"
    rf"(?:\.(?P<cut>0|[1-9][0-9]{{0,18}})(?=\.broken))?(?P<state>{_alternatives(FileState)})?"
)
# A look-up costs a tenth of making the member from its value, and opening a log needs three of
# them for each file.
_KINDS: Final = {kind.value: kind for kind in FileKind}
_STATES: Final = {state.value: state for state in FileState}
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_DIRECTORY = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})"
    rf"(?:\.(?P<id>[0-9a-f]{{32}})(?P<state>{_alternatives(DirectoryState)}))?"
)


class SegmentFileName(NamedTuple):
    """The parts of a segment file's name; `cut_position` only for state `BROKEN`, or None."""

    base_offset: int
    kind: FileKind
    state: FileState = FileState.LIVE
    cut_position: int | None = None


def segment_file_name(
    base_offset: int,
    kind: FileKind,
    state: FileState = FileState.LIVE,
    cut_position: int | None = None,
) -> str:
    """
    Return a segment file's name.

    >>> segment_file_name(5000, FileKind.LOG, FileState.SWAP)
    '00000000000000005000.log.swap'
    """
    limit = MAX_OFFSET if kind is FileKind.SNAPSHOT else MAX_BASE_OFFSET
    if not 0 <= base_offset <= limit:
        raise ValueError(f"base offset must be 0 to {limit}, got {base_offset}")
    cut = ""
    if cut_position is not None:
        if state is not FileState.BROKEN or not 0 <= cut_position <= MAX_OFFSET:
            raise ValueError(
                f"cut position must be in 0 to {MAX_OFFSET}, for {FileState.BROKEN.name} only, "
                f"got {cut_position} for {state.name}"
            )
        cut = f".{cut_position}"
    return f"{base_offset:0{OFFSET_DIGITS}d}{kind}{cut}{state}"


def try_parse_segment_file(name: str) -> SegmentFileName | None:
    """
    Return the parts of a segment file's name, or None if it is not such a name.

    A name with a base offset above MAX_BASE_OFFSET is not the name of a segment.
    """
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None:
        return None
    offset, kind, cut, state = match.groups(default="")
    base_offset = int(offset)
    cut_position = int(cut) if cut else None
    # A snapshot of producers is named by its end offset, which may be the largest offset.
    limit = MAX_OFFSET if kind == FileKind.SNAPSHOT else MAX_BASE_OFFSET
    if base_offset > limit or (cut_position or 0) > MAX_OFFSET:
        return None
    return SegmentFileName(base_offset, _KINDS[kind], _STATES[state], cut_position)


def live_base_offset(name: str, suffix: str) -> int | None:
    """
    Return the base offset in the name of a live file whose kind is `suffix`, None for other names.

    Costs a fifth of parsing all parts: opening a log calls it for each segment.
    """
    if len(name) != OFFSET_DIGITS + len(suffix) or not name.endswith(suffix):
        return None
    digits = name[:OFFSET_DIGITS]
    if not (digits.isascii() and digits.isdigit()):
        return None
    base_offset = int(digits)
    return base_offset if base_offset <= MAX_BASE_OFFSET else None


_ENDS_OF_SEGMENTS: Final = (FileKind.LOG.value, FileKind.LOG.value + FileState.SWAP.value)


def is_misnamed_segment(name: str) -> bool:
    """Return whether a name is a number with the suffix of a segment, live or `.swap`, but is not
    the name of a segment."""
    if not name.endswith(_ENDS_OF_SEGMENTS) or live_base_offset(name, FileKind.LOG) is not None:
        return False
    return name.partition(".")[0].isdecimal() and try_parse_segment_file(name) is None


def parse_segment_file(name: str) -> SegmentFileName:
    """Return the parts of a segment file's name; ValueError for other names."""
    parsed = try_parse_segment_file(name)
    if parsed is None:
        raise ValueError(f"name must be that of a segment file, got {name!r}")
    return parsed


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """
    The paths of one segment's files, all in the same state.

    >>> SegmentFiles(Path("orders-0"), 0).in_state(FileState.SWAP).log.name
    '00000000000000000000.log.swap'
    """

    directory: Path
    base_offset: int
    state: FileState = FileState.LIVE

    def path(self, kind: FileKind) -> Path:
        """Return the path of the file of one kind."""
        return self.directory / segment_file_name(self.base_offset, kind, self.state)

    @property
    def log(self) -> Path:
        return self.path(FileKind.LOG)

    @property
    def offset_index(self) -> Path:
        return self.path(FileKind.OFFSET_INDEX)

    @property
    def time_index(self) -> Path:
        return self.path(FileKind.TIME_INDEX)

    @property
    def transaction_index(self) -> Path:
        return self.path(FileKind.TRANSACTION_INDEX)

    @property
    def snapshot(self) -> Path:
        """Path of the producer state at this base offset (of the batches before it)."""
        return self.path(FileKind.SNAPSHOT)

    def broken(self, kind: FileKind, cut_position: int | None = None) -> Path:
        """Return the path for bytes truncated from the file of one kind at `cut_position`."""
        return self.directory / segment_file_name(
            self.base_offset, kind, FileState.BROKEN, cut_position
        )

    def in_state(self, state: FileState) -> SegmentFiles:
        """Return the paths of the same segment in another state."""
        return SegmentFiles(self.directory, self.base_offset, state)

    def in_directory(self, directory: Path) -> SegmentFiles:
        """Return the paths after the directory was renamed."""
        return SegmentFiles(directory, self.base_offset, self.state)

    def __iter__(self) -> Iterator[Path]:
        """Yield log, offset index, time index, transaction index: the order of renames."""
        yield self.log
        yield self.offset_index
        yield self.time_index
        yield self.transaction_index


def temporary_path(path: Path) -> Path:
    """Return the name next to `path` for its successor, which is written before the rename."""
    return path.with_name(path.name + FileState.TEMPORARY.value)


def is_topic_name(topic: str) -> bool:
    """Return whether `topic` is legal: 1 to 249 of [A-Za-z0-9._-], and not '.' or '..'."""
    return topic not in (".", "..") and _TOPIC.fullmatch(topic) is not None


def ensure_topic_name(topic: str) -> str:
    """Return `topic`; ValueError with the rule that it breaks."""
    if is_topic_name(topic):
        return topic
    if topic in ("", ".", ".."):
        raise ValueError(f"topic name must not be empty, '.' or '..', got {topic!r}")
    if len(topic) > MAX_TOPIC_SIZE:
        raise ValueError(
            f"topic name must have at most {MAX_TOPIC_SIZE} characters, got {len(topic)}:"
            f" {topic[:40]}..."
        )
    raise ValueError(f"topic name must have only characters of [A-Za-z0-9._-], got {topic!r}")


def topics_collide(topic: str, other: str) -> bool:
    """Return whether two topics are equal but for '.' and '_' (their metric names would clash)."""
    return topic.replace(".", "_") == other.replace(".", "_")


class PartitionDirectory(NamedTuple):
    """Parts of a partition directory's name."""

    topic_partition: TopicPartition
    state: DirectoryState = DirectoryState.LIVE
    unique_id: str | None = None

    @property
    def topic_may_be_cut(self) -> bool:
        """True if the name is so long that the topic may be truncated."""
        if self.state not in (DirectoryState.DELETE, DirectoryState.STRAY):
            return False
        size = len(str(self.topic_partition)) + 1 + len(self.unique_id or "") + len(self.state)
        return size >= MAX_NAME_SIZE


def partition_directory_name(
    topic_partition: TopicPartition,
    state: DirectoryState = DirectoryState.LIVE,
    unique_id: str | None = None,
) -> str:
    """
    Return the name of a partition's directory.

    Args:
        topic_partition: the partition; the topic must be legal.
        state: state of the directory; the names of all states but LIVE have an id.
        unique_id: 32 lower-case hex digits; a random id if None.

    Names of 255 characters and more: as in Kafka the topic is truncated for DELETE and STRAY, whose
    names only have to be unique; for FUTURE it must not be truncated: ValueError.
    """
    topic = ensure_topic_name(topic_partition.topic)
    partition = topic_partition.partition
    if not 0 <= partition <= MAX_PARTITION:
        raise ValueError(f"partition must be 0 to {MAX_PARTITION}, got {partition}")
    if state is DirectoryState.LIVE:
        if unique_id is not None:
            raise ValueError(f"unique_id must be None for a live directory, got {unique_id!r}")
        return f"{topic}-{partition}"
    if unique_id is None:
        unique_id = uuid.uuid4().hex
    elif re.fullmatch(r"[0-9a-f]{32}", unique_id) is None:
        raise ValueError(f"unique_id must be 32 lower-case hex digits, got {unique_id!r}")
    tail = f"-{partition}.{unique_id}{state.value}"
    if len(topic) + len(tail) > MAX_NAME_SIZE:
        if state is DirectoryState.FUTURE:
            raise ValueError(
                f"{topic}{tail}: a name must have at most {MAX_NAME_SIZE} characters,"
                f" got {len(topic) + len(tail)}"
            )
        topic = topic[: MAX_NAME_SIZE - len(tail)]
    return topic + tail


def try_parse_partition_directory(name: str) -> PartitionDirectory | None:
    """Return the parts of a partition directory's name, or None for other names."""
    match = _DIRECTORY.fullmatch(name)
    if match is None or len(name) > MAX_NAME_SIZE or not is_topic_name(match["topic"]):
        return None
    partition = int(match["partition"])
    if partition > MAX_PARTITION:
        return None
    state = DirectoryState(match["state"] or "")
    return PartitionDirectory(TopicPartition(match["topic"], partition), state, match["id"])


def parse_partition_directory(name: str) -> PartitionDirectory:
    """Return the parts of a partition directory's name; NotALogError for other names."""
    parsed = try_parse_partition_directory(name)
    if parsed is None:
        raise NotALogError(
            f"a partition directory must be named topic-partition, as 'orders-0', got {name!r}"
        )
    return parsed
