"""Where the logs of a stream end, looked at several times a second.

A look at a partition is two questions to the file system: whether files came or went in its
directory, and whether its last segment grew. Only where one of the answers is new is anything
opened, and then what follows the last known end is read. An answer so young that another change
could hide behind the same time stamp is not believed, and asked again.

Of very many partitions, those that grew since the last time are looked at each time, the others in
turn, and directories more seldom than segments: a system call is what a look costs.

The questions go to the system directly, not through the disk seam: there may be two hundred
thousand of them. What is read goes through it.

Thread-safety: none; a stream asks from one thread. Never does: keeping files open, or mapping them.
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
    look_at_partition,
    patiently,
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
# Looks at partitions that did not grow since the last time, and at directories among them: so many,
# or what brings every directory's turn within so many looks.
CHECKS_MAX: Final = 15_000
DIRECTORY_CHECKS_MAX: Final = 250
_TURNS_MAX: Final = 25
_NEVER: Final = -1


@dataclass(slots=True)
class _Watched:
    """
    A partition, and what the last looks saw.

    Attributes:
        name: topic and number.
        directory, state_directory: where it is, and whose checkpoints speak of it.
        facts: what it has.
        checkpointed_start: its log start as it was taken into the facts.
        log_path: its last segment.
        directory_ns: time stamp of the directory; _NEVER where it is not to be believed.
        log_size, log_ns: size and time stamp of the last segment, in the same way.
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
        """Take a checkpointed log start; the directory is to be read again."""
        self.checkpointed_start = start
        self.directory_ns = _NEVER

    def on_followed(self, end: int, size: int) -> None:
        """Set the end and the size that the last segment grew to."""
        facts = self.facts
        if end != facts.log_end_offset:
            sizes = (*facts.sizes[:-1], size)
            self.facts = PartitionFacts(facts.log_start_offset, end, end, facts.base_offsets, sizes)

    def on_log_checked(self, size: int, time_ns: int) -> None:
        """Set size and time stamp of the last segment; _NEVER has it compared next time."""
        self.log_size, self.log_ns = size, time_ns

    def on_refreshed(self, facts: PartitionFacts, directory_ns: int) -> None:
        """Set what a look at the whole partition has found."""
        self.facts = facts
        self.directory_ns = directory_ns
        # Without a segment there is no such file, and so another look each time.
        base_offset = facts.base_offsets[-1] if facts.base_offsets else 0
        self.log_path = f"{self.directory}/{segment_file_name(base_offset, FileKind.LOG)}"


class LogEnds:
    """
    The partitions of a stream.

    Args:
        options: of the stream.
        clock: says how old an answer is; the machine's if None.

    Attributes:
        rows: the partitions in the order of the columns.
        log_starts, log_ends, visible_ends: int64 of shape (p,), as of the last refresh; others
            after one that saw something new.
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
        Look again.

        Args:
            fully: at every partition, however many there are.

        Raises:
            KafkaLogSparkError: STORAGE, PATH_NOT_FOUND, and what the engine's errors come to.
        """
        self._now_ns = self._clock.now_ms() * 1_000_000
        is_new = self._refresh_listing()
        self._refresh_starts()
        fully = fully or not self._was_refreshed
        rows, directory_rows = self._chosen(fully=fully)
        changed = self._changed_rows(rows, directory_rows)
        for row in changed:
            if not self._refresh_if_changed(self._watched[row]):
                # Gone, or about to be something else: the listing will say.
                self._root_stamps.clear()
        self._active = set(changed)
        self._was_refreshed = True
        if is_new:
            self._rebuild_columns()
        elif changed:
            self._update_columns(changed)

    def ensure_refreshed(self) -> None:
        """Look, if nobody has yet."""
        if not self._was_refreshed:
            self.refresh(fully=True)

    def snapshot(self, chosen: Int64Array | None = None) -> QuerySnapshot:
        """Return the partitions, or those of some rows, as a plan takes them."""
        rows = range(len(self._watched)) if chosen is None else chosen.tolist()
        watched = [self._watched[row] for row in rows]
        found = [
            FoundPartition(*each.name, each.directory, each.state_directory) for each in watched
        ]
        return QuerySnapshot.of(found, [each.facts for each in watched], filesystem=self._disk)

    def _chosen(self, *, fully: bool) -> tuple[Iterable[int], range]:
        """Return the rows that are looked at this time, and those of which the directory is."""
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
        """Return of some rows those whose files have changed, or may have."""
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
        """Return a time stamp, _NEVER while another change could hide behind it."""
        return _NEVER if self._now_ns - time_ns < _TICK_NS else time_ns

    def _stamp_of(self, path: str) -> int:
        try:
            return self._believed(os.stat(path).st_mtime_ns)  # noqa: PTH116 - as above
        except FileNotFoundError:
            return 0

    def _refresh_listing(self) -> bool:
        """List the partitions again where a data directory has changed; say whether others came."""
        stamps = {path: self._stamp_of(path) for path in self._options.paths}
        if stamps == self._root_stamps and _NEVER not in stamps.values():
            return False
        found = list_partitions(self._disk, self._options.paths, self._options.topics)
        self._root_stamps = stamps
        before = {each.name: each for each in self._watched}
        watched = []
        for each in found:
            name = each.topic, each.partition
            known = before.get(name)
            if known is None or known.directory != each.directory:
                known = _Watched(name, each.directory, each.state_directory)
            watched.append(known)
        if watched == self._watched:
            return False
        self._watched, self._active = watched, set(range(len(watched)))
        self._state_directories = {each.state_directory for each in watched}
        self.rows = PartitionOffsets([each.name for each in watched])
        self._start_stamps = None
        return True

    def _refresh_starts(self) -> None:
        """Read the checkpoints of log starts again where one was written."""
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
        """Look at a partition that has changed; return whether it is still there."""
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
        """Take in what the last segment got; return False where it has to be looked at anew."""
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
        look = partial(look_at_partition, self._disk, directory, start, options.isolation)
        watched.on_refreshed(patiently(look, options.retries, directory), directory_ns)
        self._read_topic_id(watched)

    def _read_topic_id(self, watched: _Watched) -> None:
        """Read the id of a topic where its first partition was looked at anew."""
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
        """Take what some rows have; who holds the columns of before keeps them as they were."""
        facts = [self._watched[row].facts for row in rows]
        starts, ends, visible = (
            column.copy() for column in (self.log_starts, self.log_ends, self.visible_ends)
        )
        starts[rows] = [each.log_start_offset for each in facts]
        ends[rows] = [each.log_end_offset for each in facts]
        visible[rows] = [each.visible_end for each in facts]
        self.log_starts, self.log_ends, self.visible_ends = starts, ends, visible
