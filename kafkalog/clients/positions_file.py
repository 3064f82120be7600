"""Positions of one group in a file of the caller, for consumers of logs that others write.

Lines of UTF-8, with single spaces:

    kafkalog positions 1
    group billing
    orders 0 1234 5 1763712080000 AAECAwQFBgcICQoLDA0ODw -
    bills 0 - - 1763712080000 - -
    sum 5c3a9f10

The second line has the name of the group, quoted as in a URL. Then each partition has a line:
topic, partition, next offset (`-`: the position was removed), leader epoch, time of the commit in
ms, topic id, and the text of the client, quoted. `-` is a value that is not there, and an empty
text. The last line has the CRC-32C of all lines before it.

A position of another topic of the same name, by its topic id, is ignored: the topic was deleted and
made again. A partition without a line has the position that the group has committed in the
directories.

The file is replaced as a whole (`kafkalog.files.atomic_files`), and on the disk when a commit
returns. Crash points: before the renaming the old positions count, after it the new ones. A damaged
file is an error, because a silent restart would read records twice or skip them.

A file belongs to one consumer: a commit is refused if another one has replaced the file.

Thread-safety: every method from any thread, under one lock.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from kafkalog._core import crc32c
from kafkalog.clients.group_positions import GroupPositions
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.errors import ConfigError, CorruptStateError, LogLockedError
from kafkalog.files.atomic_files import DirectorySyncError, read_file, replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileFacts, FileSystem
from kafkalog.log.log import Wait
from kafkalog.model import TopicPartition
from kafkalog.state.kafka_uuid import format_id

__all__ = ["PositionsFile"]

_HEAD: Final = "kafkalog positions 1"
_NONE: Final = "-"
_BYTES_MAX: Final = 1 << 28
_LINE: Final = re.compile(
    r"(?P<topic>\S+) (?P<partition>\d{1,10}) (?P<offset>-|\d{1,19}) (?P<epoch>-|\d{1,10})"
    r" (?P<time>\d{1,19}) (?P<topic_id>\S+) (?P<metadata>\S+)"
)


class _Position(NamedTuple):
    """A position, None if it was removed, and the id of its topic as text; "-" without one."""

    position: CommittedOffset | None
    topic_id: str
    time_ms: int


class PositionsFile:
    """
    Positions of one group in a file.

    Args:
        path: the file; made by the first commit.
        group: name of the group.
        filesystem: its disk.
        committed: has the positions of partitions that the file does not name.
        topic_id_of: returns the topic id of a partition now, None without one.

    Raises:
        ConfigError: the file has the positions of another group.
        CorruptStateError: the file is damaged.
        LogStorageError: it cannot be read.
    """

    def __init__(
        self,
        path: Path,
        group: str,
        filesystem: FileSystem,
        committed: GroupPositions,
        topic_id_of: Callable[[TopicPartition], uuid.UUID | None],
    ) -> None:
        self._path = path
        self._group = group
        self._filesystem = filesystem
        self._committed = committed
        self._topic_id_of = topic_id_of
        self._lock = threading.Lock()
        self._positions: dict[TopicPartition, _Position] = {}
        with storage_errors(path, doing="reading"):
            # Before the content: a file that is replaced in between is noticed by the first commit.
            self._facts: FileFacts | None = filesystem.stat(path)
            self._read()

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """See `GroupPositions`."""
        found = self._committed.committed(group)
        with self._lock:
            own = dict(self._positions)
        for where, (position, topic_id, _time_ms) in own.items():
            if topic_id != _NONE and topic_id != self._id_of(where):
                continue
            if position is None:
                found.pop(where, None)
            else:
                found[where] = position
        return found

    def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int | None],
        *,
        now_ms: int,
        wait: Wait,  # noqa: ARG002 - a commit is always on the disk
    ) -> None:
        """
        Commit positions, all of them or none; they are on the disk when this returns.

        Raises:
            ValueError: an offset is negative.
            LogLockedError: another consumer has replaced the file.
            DiskFullError, LogStorageError: the disk refused; the old positions stay.
        """
        assert group == self._group
        fresh = {
            TopicPartition(*where): self._position(TopicPartition(*where), position, now_ms)
            for where, position in offsets.items()
        }
        with self._lock, storage_errors(self._path, doing="writing"):
            if self._filesystem.stat(self._path) != self._facts:
                raise LogLockedError(
                    f"{self._path} was changed by another consumer since this one read it: a file"
                    " of positions belongs to one consumer",
                    path=self._path,
                )
            positions = self._positions | fresh
            try:
                replace_file(self._filesystem, self._path, self._text(positions))
            except DirectorySyncError:
                # Replaced, and perhaps not on the disk: the next commit may replace it again.
                self._facts = self._filesystem.stat(self._path)
                raise
            self._positions, self._facts = positions, self._filesystem.stat(self._path)

    def _position(
        self, where: TopicPartition, position: CommittedOffset | int | None, now_ms: int
    ) -> _Position:
        if position is not None and not isinstance(position, CommittedOffset):
            position = CommittedOffset(position)
        if position is not None and position.offset < 0:
            raise ValueError(f"offset must be >= 0, got {position.offset} for {where}")
        if position is not None and position.commit_timestamp_ms < 0:
            position = position._replace(commit_timestamp_ms=now_ms)
        return _Position(position, self._id_of(where), now_ms)

    def _id_of(self, where: TopicPartition) -> str:
        topic_id = self._topic_id_of(where)
        return _NONE if topic_id is None else format_id(topic_id)

    def _text(self, positions: Mapping[TopicPartition, _Position]) -> bytes:
        lines = [_HEAD, f"group {quote(self._group)}"]
        for (topic, partition), (position, topic_id, time_ms) in sorted(positions.items()):
            if position is None:
                values = f"{_NONE} {_NONE} {time_ms} {topic_id} {_NONE}"
            else:
                epoch = _NONE if position.leader_epoch is None else position.leader_epoch
                # A text "-" alone would mean that there is none.
                text = quote(position.metadata).replace(_NONE, "%2D") or _NONE
                values = (
                    f"{position.offset} {epoch} {position.commit_timestamp_ms} {topic_id} {text}"
                )
            lines.append(f"{topic} {partition} {values}")
        body = ("\n".join(lines) + "\n").encode()
        return body + b"sum %08x\n" % crc32c.value(body)

    def _read(self) -> None:
        try:
            data = read_file(self._filesystem, self._path, max_bytes=_BYTES_MAX)
            if data is None:
                return
            group, self._positions = _parse(data)
        except ValueError as error:
            raise CorruptStateError(
                f"{self._path}: {error}; remove the file to start at the positions that the group"
                " has committed, or by auto.offset.reset",
                path=self._path,
            ) from error
        if group != self._group:
            raise ConfigError(
                f"{self._path} must have the positions of group {self._group!r}, got {group!r}",
                path=self._path,
            )


def _parse(data: bytes) -> tuple[str, dict[TopicPartition, _Position]]:
    """Return the group and the positions of a file; ValueError if it is damaged."""
    body, _, checksum = data[:-1].rpartition(b"\n")
    body += b"\n"
    if data[-1:] != b"\n" or checksum != b"sum %08x" % crc32c.value(body):
        raise ValueError("the file is damaged: its sum is wrong or missing")
    head, group, *lines = body.decode().splitlines()
    if head != _HEAD or not group.startswith("group "):
        raise ValueError(f"the first line must be {_HEAD!r}, got {head[:40]!r}")
    found: dict[TopicPartition, _Position] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"a line must have 7 values, got {line[:80]!r}")
        position = None
        if match["offset"] != _NONE:
            position = CommittedOffset(
                int(match["offset"]),
                "" if match["metadata"] == _NONE else unquote(match["metadata"]),
                None if match["epoch"] == _NONE else int(match["epoch"]),
                int(match["time"]),
            )
        where = TopicPartition(match["topic"], int(match["partition"]))
        found[where] = _Position(position, match["topic_id"], int(match["time"]))
    return unquote(group.removeprefix("group ")), found
