"""Safety poll of a follower: finds changes of partitions without an event.

Events may be missing: of another machine on a network file system, of a lost queue, or of a system
without events. The sweep compares the change mark of the partition directory, and the size of the
last segment, with those of its last look. Where there are events, it has a budget, so that an idle
follower of many partitions costs a constant fraction of a core.

Thread-safety: one thread at a time.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileFacts, FileSystem
from kafkalog.files.names import FileKind, SegmentFiles, live_base_offset

__all__ = ["LOOKS_WITH_EVENTS", "Sweep", "SweepMark", "mark_of"]

# Each look takes 5 to 10 us; with one sweep a second this is about 0.2 % of a core.
LOOKS_WITH_EVENTS: Final = 250


class SweepMark(NamedTuple):
    """
    Facts of a partition directory at a look.

    Attributes:
        names: change mark of the directory; None if the next change may not show in it.
        last_log: path of the last segment, None without one.
        last_facts: facts of that file.
    """

    names: tuple[int, ...] | None = None
    last_log: Path | None = None
    last_facts: FileFacts | None = None


def mark_of(filesystem: FileSystem, directory: Path, before: SweepMark) -> SweepMark | None:
    """
    Return the present mark of a partition directory, None if it does not exist.

    Args:
        filesystem: the disk.
        directory: the partition directory.
        before: the mark of the last look; its segment is the last one while the names are equal.

    Raises:
        OSError: the disk refused.
    """
    names = filesystem.change_mark(directory)
    last_log = before.last_log
    if names is None or names != before.names:
        try:
            listed = filesystem.list(directory)
        except FileNotFoundError:
            return None
        bases = [live_base_offset(name, FileKind.LOG.value) for name in listed]
        last = max((base for base in bases if base is not None), default=None)
        last_log = None if last is None else SegmentFiles(directory, last).log
    return SweepMark(names, last_log, None if last_log is None else filesystem.stat(last_log))


class Sweep:
    """
    Looks at partition directories in turn.

    Args:
        filesystem: the disk.
        looks_max: largest number of looks in a round; None for all.
    """

    def __init__(self, filesystem: FileSystem, looks_max: int | None) -> None:
        self._filesystem = filesystem
        self._looks_max = looks_max
        self._marks: dict[Path, SweepMark] = {}
        self._queue: deque[Path] = deque()

    def add(self, directory: Path) -> None:
        """Look at a directory in later rounds."""
        if directory not in self._marks:
            self._marks[directory] = SweepMark()
            self._queue.append(directory)

    def remove(self, directory: Path) -> None:
        """Look at a directory no longer."""
        if self._marks.pop(directory, None) is not None:
            self._queue.remove(directory)

    def look_at_all(self) -> None:
        """Look at all directories in each later round: there are no events any more."""
        self._looks_max = None

    def changed(self) -> list[Path]:
        """
        Run a round; return the directories that have changed since their last look, or may have.

        Raises:
            LogStorageError: the disk refused.
        """
        found = []
        count = len(self._queue)
        for _turn in range(count if self._looks_max is None else min(count, self._looks_max)):
            directory = self._queue[0]
            self._queue.rotate(-1)
            before = self._marks[directory]
            with storage_errors(directory, doing="reading"):
                mark = mark_of(self._filesystem, directory, before)
            self._marks[directory] = SweepMark() if mark is None else mark
            if mark is None or mark.last_facts != before.last_facts or mark.names != before.names:
                found.append(directory)
        return found
