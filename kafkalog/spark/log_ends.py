"""Ends of a stream's logs, read several times a second.

A check of a partition is two questions to the file system: did files come or go in its directory,
and did its last segment grow. Only if one of the answers is new is anything opened, and then the
bytes after the known end are read. A time stamp so recent that another change could have the same
one is not trusted; the check is repeated.

Of very many partitions, those that grew since the last time are checked each time, the others in
turn, and directories less often than segments: a check costs a system call.

The questions go to the system directly, not through the disk seam: there may be two hundred
thousand of them. Reads go through it.

Thread-safety: none; a stream calls from one thread. Never keeps files open, and never maps them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog.clock import Clock, SystemClock
from kafkalog.errors import CorruptStateError
from kafkalog.files.names import LOG_START_OFFSET_CHECKPOINT, FileKind, segment_file_name
from kafkalog.files.posix import PosixFileSystem
from kafkalog.model import TopicPartition
from kafkalog.spark.errors import coded_errors
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan.listing import FoundPartition, list_partitions, read_log_starts
from kafkalog.spark.plan.log_files import follow_log_end
from kafkalog.spark.plan.snapshot import (
    PartitionFacts,
    QuerySnapshot,
    read_partition_facts,
    retry_transient,
)
from kafkalog.spark.stream_offsets import PartitionOffsets
from kafkalog.state.kafka_uuid import format_id
from kafkalog.state.partition_metadata import read_partition_metadata

__all__ = ["LogEnds"]

logger = logging.getLogger(__name__)

Int64Array = npt.NDArray[np.int64]
_NOTHING: Final = PartitionFacts(0, 0, 0, (), ())
# Two changes within one tick of a file system's clock have the same time stamp.
_TICK_NS: Final = 50_000_000
# Limits of a refresh: partitions that did not grow since the last time, and directories among them;
# or more, so that every directory is checked within _TURNS_MAX refreshes.
CHECKS_MAX: Final = 15_000
DIRECTORY_CHECKS_MAX: Final = 250
_TURNS_MAX: Final = 25
_NEVER: Final = -1


@dataclass(slots=True)
class _Watched:
    """
    A partition, with the results of the last checks.

    Attributes:
        name: topic and number.
        directory, state_directory: its directory, and the directory of its checkpoints.
        facts: its facts.
        checkpointed_start: the checkpointed log start offset of the facts.
        log_path: its last segment.
        directory_ns: time stamp of the directory; _NEVER if it is not trusted.
        log_size, log_ns: size and time stamp of the last segment; _NEVER if they are not trusted.
    """

    name: tuple[str, int]
    directory: str
    state_directory: str
    facts: PartitionFacts = _NOTHING
    checkpointed_start: int = 0
    log_path: str = ""
    directory_ns: int = _NEVER
    log_size: int = _NEVER
    log_ns: int = _NEVER

    def on_start_changed(self, start: int) -> None:
        """Set the checkpointed log start offset, and have the directory checked again."""
        self.checkpointed_start = start
        self.directory_ns = _NEVER

    def on_followed(self, end: int, size: int) -> None:
        """Set the end and the size that the last segment grew to."""
        facts = self.facts
        if end != facts.log_end_offset:
            sizes = (*facts.sizes[:-1], size)
            self.facts = PartitionFacts(facts.log_start_offset, end, end, facts.base_offsets, sizes)

    def on_log_checked(self, size: int, time_ns: int) -> None:
        """Set size and time stamp of the last segment; _NEVER forces a check next time."""
        self.log_size, self.log_ns = size, time_ns

    def on_refreshed(self, facts: PartitionFacts, directory_ns: int) -> None:
        """Set the result of a read of the whole partition."""
        self.facts = facts
        self.directory_ns = directory_ns
        # Without a segment this file does not exist, which causes a read at each check.
        base_offset = facts.base_offsets[-1] if facts.base_offsets else 0
        self.log_path = f"{self.directory}/{segment_file_name(base_offset, FileKind.LOG)}"


class LogEnds:
    """
    The partitions of a stream.

    Args:
        options: of the stream.
        clock: gives the age of time stamps; the machine's if None.

    Attributes:
        rows: the partitions in the order of the columns.
        log_starts, log_ends, visible_ends: int64 of shape (p,), as of the last refresh; new arrays
            after each refresh with a change.
        topic_ids: of the topics that have one.
    """

    def __init__(self, options: ReadOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = SystemClock() if clock is None else clock
        self._disk = PosixFileSystem()
        # In the order of the rows.
        self._watched: list[_Watched] = []
        self._state_directories: set[str] = set()
        self._root_stamps: dict[str, int] = {}
        self._start_stamps: dict[str, int] | None = None
        # Rows that have changed since the last time.
        self._active: set[int] = set()
        self._turn = self._directory_turn = 0
        self._now_ns = 0
        self._was_refreshed = False
        self.rows = PartitionOffsets([])
        self.topic_ids: dict[str, str] = {}
        self._rebuild_columns()

    @coded_errors()
    def refresh(self, *, fully: bool = False) -> None:
        """
        Check for changes.

        Args:
            fully: True to check every partition, however many there are.

        Raises:
            KafkaLogSparkError: STORAGE, PATH_NOT_FOUND, and the translations of the engine's
                errors.
        """
        self._now_ns = self._clock.now_ms() * 1_000_000
        is_new = self._refresh_listing()
        self._refresh_starts()
        fully = fully or not self._was_refreshed
        rows, directory_rows = self._chosen(fully=fully)
        changed = self._changed_rows(rows, directory_rows)
        for row in changed:
            if not self._refresh_if_changed(self._watched[row]):
                # Gone, or replaced by something else: the listing shows which.
                self._root_stamps.clear()
        self._active = set(changed)
        self._was_refreshed = True
        if is_new:
            self._rebuild_columns()
        elif changed:
            self._update_columns(changed)

    def ensure_refreshed(self) -> None:
        """Refresh, if that was never done."""
        if not self._was_refreshed:
            self.refresh(fully=True)

    def snapshot(self, chosen: Int64Array | None = None) -> QuerySnapshot:
        """Return the partitions, or those of some rows, as a query's snapshot."""
        rows = range(len(self._watched)) if chosen is None else chosen.tolist()
        watched = [self._watched[row] for row in rows]
        found = [
            FoundPartition(*each.name, each.directory, each.state_directory) for each in watched
        ]
        return QuerySnapshot.of(found, [each.facts for each in watched], filesystem=self._disk)

    def _chosen(self, *, fully: bool) -> tuple[Iterable[int], range]:
        """Return the rows to check this time, and those whose directory is checked."""
        count = len(self._watched)
        in_turn = directories = range(count)
        at_once = max(DIRECTORY_CHECKS_MAX, -(-count // _TURNS_MAX))
        if not fully and count > at_once:
            first = self._directory_turn % count
            self._directory_turn = first + at_once
            directories = range(first, min(first + at_once, count))
        if not fully and count > CHECKS_MAX:
            first = self._turn % count
            self._turn = first + CHECKS_MAX
            in_turn = range(first, min(first + CHECKS_MAX, count))
        rest = self._active.union(directories).difference(in_turn)
        return [*in_turn, *sorted(rest)] if rest else in_turn, directories

    def _changed_rows(self, rows: Iterable[int], directory_rows: range) -> list[int]:
        """Return the rows whose files have changed, or may have."""
        stat, watched, active, changed = os.stat, self._watched, self._active, []
        first, stop = directory_rows.start, directory_rows.stop
        for row in rows:
            each = watched[row]
            try:
                if first <= row < stop or row in active or each.directory_ns == _NEVER:
                    found = stat(each.directory)
                    if found.st_mtime_ns != each.directory_ns:
                        changed.append(row)
                        continue
                found = stat(each.log_path)
                if found.st_mtime_ns != each.log_ns or found.st_size != each.log_size:
                    changed.append(row)
            except FileNotFoundError:
                changed.append(row)
        return changed

    def _believed(self, time_ns: int) -> int:
        """Return a time stamp, or _NEVER if another change could have the same one."""
        return _NEVER if self._now_ns - time_ns < _TICK_NS else time_ns

    def _stamp_of(self, path: str) -> int:
        try:
            return self._believed(os.stat(path).st_mtime_ns)  # noqa: PTH116 - as above
        except FileNotFoundError:
            return 0

    def _refresh_listing(self) -> bool:
        """List the partitions again if a data directory has changed; return True for a new list."""
        stamps = {path: self._stamp_of(path) for path in self._options.paths}
        if stamps == self._root_stamps and _NEVER not in stamps.values():
            return False
        found = list_partitions(self._disk, self._options.paths, self._options.topics)
        self._root_stamps = stamps
        before = {each.name: each for each in self._watched}
        watched = []
        for each in found:
            name = each.topic, each.partition
            entry = before.get(name)
            if entry is None or entry.directory != each.directory:
                entry = _Watched(name, each.directory, each.state_directory)
            watched.append(entry)
        if watched == self._watched:
            return False
        self._watched, self._active = watched, set(range(len(watched)))
        self._state_directories = {each.state_directory for each in watched}
        self.rows = PartitionOffsets([each.name for each in watched])
        self._start_stamps = None
        return True

    def _refresh_starts(self) -> None:
        """Read the checkpoints of log starts again if one was written."""
        stamps = {
            directory: self._stamp_of(f"{directory}/{LOG_START_OFFSET_CHECKPOINT}")
            for directory in self._state_directories
        }
        if stamps == self._start_stamps and _NEVER not in stamps.values():
            return
        starts = read_log_starts(self._disk, self._state_directories)
        self._start_stamps = stamps
        for each in self._watched:
            start = starts.get((each.state_directory, TopicPartition(*each.name)), 0)
            if start != each.checkpointed_start:
                each.on_start_changed(start)

    def _refresh_if_changed(self, watched: _Watched) -> bool:
        """Read a changed partition; return False if it is gone."""
        try:
            directory = os.stat(watched.directory)  # noqa: PTH116 - as above
            if directory.st_mtime_ns == watched.directory_ns:
                log = os.stat(watched.log_path)  # noqa: PTH116
                if self._follow(watched):
                    watched.on_log_checked(log.st_size, self._believed(log.st_mtime_ns))
                    return True
        except FileNotFoundError:
            if not os.path.isdir(watched.directory):  # noqa: PTH112
                return False
            directory = os.stat(watched.directory)  # noqa: PTH116
        self._refresh(watched, self._believed(directory.st_mtime_ns))
        return True

    def _follow(self, watched: _Watched) -> bool:
        """
        Read the new bytes of the last segment; return False if the whole partition must be read.
        """
        facts, directory = watched.facts, Path(watched.directory)
        if self._options.isolation == "read_committed":
            return False
        try:
            found = follow_log_end(
                self._disk,
                directory,
                facts.base_offsets[-1],
                facts.log_end_offset,
                facts.sizes[-1],
            )
        except OSError:
            return False
        if found is None:
            return False
        watched.on_followed(*found)
        return True

    def _refresh(self, watched: _Watched, directory_ns: int) -> None:
        directory, options = watched.directory, self._options
        start = watched.checkpointed_start
        watched.on_log_checked(_NEVER, _NEVER)
        look = partial(read_partition_facts, self._disk, directory, start, options.isolation)
        watched.on_refreshed(retry_transient(look, options.retries, directory), directory_ns)
        self._read_topic_id(watched)

    def _read_topic_id(self, watched: _Watched) -> None:
        """Read the id of a topic after a read of its first partition."""
        (topic, number), directory = watched.name, watched.directory
        if number and self.rows.has(topic, number - 1):
            return
        try:
            topic_id = read_partition_metadata(self._disk, Path(directory))
        except CorruptStateError as error:
            logger.warning("%s: its topic id is not known: %s", directory, error)
            topic_id = None
        if topic_id is None:
            self.topic_ids.pop(topic, None)
        else:
            self.topic_ids[topic] = format_id(topic_id)

    def _rebuild_columns(self) -> None:
        facts = [each.facts for each in self._watched]
        self.log_starts = np.array([each.log_start_offset for each in facts], np.int64)
        self.log_ends = np.array([each.log_end_offset for each in facts], np.int64)
        self.visible_ends = np.array([each.visible_end for each in facts], np.int64)

    def _update_columns(self, rows: list[int]) -> None:
        """Set the facts of some rows, in copies: the former columns may be in use."""
        facts = [self._watched[row].facts for row in rows]
        starts, ends, visible = (
            column.copy() for column in (self.log_starts, self.log_ends, self.visible_ends)
        )
        starts[rows] = [each.log_start_offset for each in facts]
        ends[rows] = [each.log_end_offset for each in facts]
        visible[rows] = [each.visible_end for each in facts]
        self.log_starts, self.log_ends, self.visible_ends = starts, ends, visible
