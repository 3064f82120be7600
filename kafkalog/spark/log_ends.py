"""Where the logs of a stream end, looked at several times a second.

A look at a partition is two questions to the file system: whether files came or went in its
directory, and whether its last segment grew. Only where one of the answers is new is anything
opened, and then what follows the last known end is read. An answer so young that another change
could hide behind the same time stamp is not believed, and asked again.

Of very many partitions, those that grew lately are looked at each time, the others in turn.

The questions go to the system directly, not through the disk seam: there may be two hundred
thousand of them. What is read goes through it.

Thread-safety: none; a stream asks from one thread. Never does: keeping files open, or mapping them.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from kafkalog.clock import Clock, SystemClock
from kafkalog.errors import CorruptStateError, KafkaLogError
from kafkalog.files.names import LOG_START_OFFSET_CHECKPOINT, FileKind, segment_file_name
from kafkalog.files.posix import PosixFileSystem
from kafkalog.model import TopicPartition
from kafkalog.spark.errors import of_engine
from kafkalog.spark.options import ReadOptions
from kafkalog.spark.plan.listing import FoundPartition, list_partitions, read_log_starts
from kafkalog.spark.plan.log_files import follow_log_end
from kafkalog.spark.plan.snapshot import (
    LogSnapshot,
    PartitionFacts,
    look_at_partition,
    patiently,
)
from kafkalog.spark.stream_offsets import PartitionRows
from kafkalog.state.kafka_uuid import format_id
from kafkalog.state.partition_metadata import read_partition_metadata

__all__ = ["LogEnds"]

logger = logging.getLogger(__name__)

Int64Array = npt.NDArray[np.int64]
Stamp = tuple[int, int, int]

# Two changes within one tick of a file system's clock have the same time stamp.
_TICK_NS: Final = 50_000_000
# Looks at partitions that did not grow lately, each time.
LOOKS_MAX: Final = 20_000
_NEVER: Final[Stamp] = (-1, -1, -1)


@dataclass(slots=True)
class _Watched:
    """
    A partition, and what the last looks saw.

    Attributes:
        found: where it is.
        facts: what it has.
        log_path: its last segment.
        directory_stamp, log_stamp: what tells a change; _NEVER where it is to be asked again.
        checkpointed_start: its log start as it was taken into the facts.
    """

    found: FoundPartition
    facts: PartitionFacts
    log_path: str
    directory_stamp: Stamp
    log_stamp: Stamp
    checkpointed_start: int


class LogEnds:
    """
    The partitions of a stream.

    Args:
        options: of the stream.
        clock: says how young an answer is; the machine's if None.

    Attributes:
        rows: the partitions in the order of the columns.
        log_starts, log_ends, visible_ends: int64 of shape (p,), as of the last refresh.
        topic_ids: of the topics that have one.
    """

    def __init__(self, options: ReadOptions, clock: Clock | None = None) -> None:
        self._options = options
        self._clock = SystemClock() if clock is None else clock
        self._disk = PosixFileSystem()
        self._watched: dict[tuple[str, int], _Watched] = {}
        self._root_stamps: dict[str, Stamp] = {}
        self._start_stamps: dict[str, Stamp | None] | None = None
        self._starts: Mapping[tuple[str, TopicPartition], int] = {}
        self._active: set[tuple[str, int]] = set()
        self._turn = 0
        self._was_refreshed = False
        self.rows = PartitionRows([])
        self.topic_ids: dict[str, str] = {}
        self._take_columns()

    def refresh(self, *, fully: bool = False) -> None:
        """
        Look again.

        Args:
            fully: at every partition, however many there are.

        Raises:
            KafkaLogSparkError: STORAGE, PATH_NOT_FOUND, and what the engine's errors come to.
        """
        self._refresh_listing()
        self._refresh_starts()
        for name in self._chosen(fully=fully or not self._was_refreshed):
            watched = self._watched.get(name)
            if watched is not None and not self._look(name, watched):
                self._root_stamps.clear()
        self._was_refreshed = True
        self._take_columns()

    def ensure_refreshed(self) -> None:
        """Look, if nobody has yet."""
        if not self._was_refreshed:
            self.refresh(fully=True)

    def snapshot(self, chosen: Int64Array | None = None) -> LogSnapshot:
        """Return the partitions, or those of some rows, as a plan takes them."""
        names = self.rows.names
        if chosen is not None:
            names = [names[row] for row in chosen.tolist()]
        watched = [self._watched[name] for name in names]
        return LogSnapshot.of(
            [each.found for each in watched],
            [each.facts for each in watched],
            filesystem=self._disk,
        )

    def _chosen(self, *, fully: bool) -> list[tuple[str, int]]:
        """Return which partitions are looked at this time."""
        names = self.rows.names
        if fully or len(names) <= LOOKS_MAX:
            return names
        first = self._turn % len(names)
        self._turn = first + LOOKS_MAX
        in_turn = names[first : first + LOOKS_MAX]
        return [*in_turn, *self._active.difference(in_turn)]

    def _stamp(self, path: str) -> Stamp:
        """Return what tells a change of a file, _NEVER while another could hide behind it."""
        found = os.stat(path)  # noqa: PTH116 - a Path costs as much again
        if self._clock.now_ms() * 1_000_000 - found.st_mtime_ns < _TICK_NS:
            return _NEVER
        return found.st_ino, found.st_size, found.st_mtime_ns

    def _stamp_or_none(self, path: str) -> Stamp | None:
        try:
            return self._stamp(path)
        except FileNotFoundError:
            return None

    def _refresh_listing(self) -> None:
        """List the partitions again where a data directory has changed."""
        stamps = {path: self._stamp_or_none(path) or _NEVER for path in self._options.paths}
        if stamps == self._root_stamps and _NEVER not in stamps.values():
            return
        found = list_partitions(self._disk, self._options.paths, self._options.topics)
        fresh = {(each.topic, each.partition): each for each in found}
        gone = self._watched.keys() - fresh.keys()
        for name in gone:
            del self._watched[name]
            self._active.discard(name)
        for name, each in fresh.items():
            watched = self._watched.get(name)
            if watched is None or watched.found != each:
                empty = PartitionFacts(0, 0, 0, (), ())
                self._watched[name] = _Watched(each, empty, "", _NEVER, _NEVER, 0)
        if gone or len(self.rows) != len(fresh):
            self.rows = PartitionRows(sorted(fresh))
            self._start_stamps = None
        self._root_stamps = stamps

    def _refresh_starts(self) -> None:
        """Read the checkpoints of log starts again where one was written."""
        directories = {each.found.state_directory for each in self._watched.values()}
        stamps = {
            directory: self._stamp_or_none(f"{directory}/{LOG_START_OFFSET_CHECKPOINT}")
            for directory in directories
        }
        if stamps == self._start_stamps and _NEVER not in stamps.values():
            return
        self._starts = read_log_starts(self._disk, [w.found for w in self._watched.values()])
        self._start_stamps = stamps
        for name, watched in self._watched.items():
            start = self._starts.get((watched.found.state_directory, TopicPartition(*name)), 0)
            if start != watched.checkpointed_start:
                watched.checkpointed_start = start
                watched.directory_stamp = _NEVER

    def _look(self, name: tuple[str, int], watched: _Watched) -> bool:
        """Look at a partition; return whether it is still there."""
        try:
            directory_stamp = self._stamp(watched.found.directory)
            if directory_stamp == watched.directory_stamp and directory_stamp is not _NEVER:
                log_stamp = self._stamp(watched.log_path) if watched.log_path else _NEVER
                if log_stamp == watched.log_stamp and log_stamp is not _NEVER:
                    self._active.discard(name)
                    return True
                if watched.log_path and self._follow(watched):
                    watched.log_stamp = log_stamp
                    self._active.add(name)
                    return True
        except FileNotFoundError:
            directory_stamp = _NEVER
        if not os.path.isdir(watched.found.directory):  # noqa: PTH112 - as above
            return False
        self._look_anew(name, watched)
        watched.directory_stamp = directory_stamp
        self._active.add(name)
        return True

    def _follow(self, watched: _Watched) -> bool:
        """Take in what the last segment got; return False where it has to be looked at anew."""
        facts, directory = watched.facts, Path(watched.found.directory)
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
        end, size = found
        if end != facts.log_end_offset:
            sizes = (*facts.sizes[:-1], size)
            watched.facts = PartitionFacts(
                facts.log_start_offset, end, end, facts.base_offsets, sizes
            )
        return True

    def _look_anew(self, name: tuple[str, int], watched: _Watched) -> None:
        found, options = watched.found, self._options
        start = watched.checkpointed_start
        look = partial(look_at_partition, self._disk, found.directory, start, options.isolation)
        watched.facts = patiently(look, options.retries, found.directory)
        bases = watched.facts.base_offsets
        watched.log_path, watched.log_stamp = "", _NEVER
        if bases:
            watched.log_path = f"{found.directory}/{segment_file_name(bases[-1], FileKind.LOG)}"
        self._read_topic_id(name, found.directory)

    def _read_topic_id(self, name: tuple[str, int], directory: str) -> None:
        """Read the id of a topic where its first partition was looked at anew."""
        topic, number = name
        if (topic, number - 1) in self._watched:
            return
        try:
            topic_id = read_partition_metadata(self._disk, Path(directory))
        except CorruptStateError as error:
            logger.warning("%s: its topic id is not known: %s", directory, error)
            topic_id = None
        except KafkaLogError as error:
            raise of_engine(error) from error
        if topic_id is None:
            self.topic_ids.pop(topic, None)
        else:
            self.topic_ids[topic] = format_id(topic_id)

    def _take_columns(self) -> None:
        facts = [self._watched[name].facts for name in self.rows.names]
        count = len(facts)
        self.log_starts = np.fromiter((each.log_start_offset for each in facts), np.int64, count)
        self.log_ends = np.fromiter((each.log_end_offset for each in facts), np.int64, count)
        self.visible_ends = np.fromiter((each.visible_end for each in facts), np.int64, count)
