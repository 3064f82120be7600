"""Result of the parts of one `send_many`, which a producer gets one after the other.

A call of many records is passed on in parts, so that no part keeps the interpreter for long. Their
futures are joined here: the call is done with the last of them. The thread that ends a part joins
its ranges: of 100,000 records to 100 partitions the loop would do it for 50 ms.

Thread-safety: parts are added by one thread; they end in any. The lock guards the parts and their
count.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from kafkalog.clients.many_records import SentMany, SentRange
from kafkalog.pace import PAUSE_SECONDS

__all__ = ["JoinedSends"]


class JoinedSends:
    """
    Futures of the parts of one call.

    Args:
        on_done: called once, by any thread, when all parts were added and have ended.
    """

    def __init__(self, on_done: Callable[[], object]) -> None:
        self._on_done = on_done
        self._lock = threading.Lock()
        # One more until the last part was added.
        self._open_count = 1
        # Each with the number of its first record: those that are not joined, in order, and those
        # that are but have records which are not in the log.
        self._parts: deque[tuple[int, SentMany]] = deque()
        self._failed: list[tuple[int, SentMany]] = []
        self._joined = _JoinedRanges()
        self._error: BaseException | None = None
        self._refused_rows = range(0)
        self._refusal: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """True if all parts were added and have ended."""
        return not self._open_count

    def result(self) -> list[SentRange]:
        """Return the ranges of a call that is done, or raise the error of its first record."""
        error = self._error or self._refusal
        if error is not None:
            raise error
        return self.delivered

    @property
    def delivered(self) -> list[SentRange]:
        """The ranges that are in the log so far; ranges of parts that follow each other as one."""
        with self._lock:
            if not self._parts:
                return self._joined.ranges()
            joined = self._joined.copy()
            for _first_row, part in self._parts:
                joined.add(part.delivered)
        return joined.ranges()

    @property
    def failed_rows(self) -> list[int]:
        """Numbers of the records that will not be in the log, counted from 0, in order."""
        with self._lock:
            parts = [*self._failed, *self._parts]
        found = [first_row + row for first_row, part in parts for row in part.failed_rows]
        return [*found, *self._refused_rows]

    def add(self, first_row: int, part: SentMany) -> None:
        """Add the future of a part."""
        with self._lock:
            self._open_count += 1
            self._parts.append((first_row, part))
        part.add_done_callback(lambda _part: self._count_end())

    def refuse(self, rows: range, error: BaseException) -> None:
        """Add records that were not accepted; they follow those of all parts."""
        self._refused_rows, self._refusal = rows, error

    def end(self) -> None:
        """State that all parts were added."""
        self._count_end()

    def _count_end(self) -> None:
        while self._try_join() and self._parts:
            # The first part may have ended last, after a hundred others.
            time.sleep(PAUSE_SECONDS)
        with self._lock:
            self._open_count -= 1
            is_done = not self._open_count
        if is_done:
            self._on_done()

    def _try_join(self) -> bool:
        """Join the ranges of the first part, and drop it; return False if it has not ended."""
        with self._lock:
            if not self._parts or not self._parts[0][1].done():
                return False
            first_row, part = self._parts.popleft()
            error = part.exception(0)
            if error is not None:
                self._error = self._error or error
                self._failed.append((first_row, part))
            self._joined.add(part.delivered)
            return True


class _JoinedRanges:
    """Ranges by partition; those that follow each other are one."""

    def __init__(self) -> None:
        self._by_partition: dict[int, list[SentRange]] = {}

    def copy(self) -> _JoinedRanges:
        """Return a copy."""
        made = _JoinedRanges()
        made._by_partition = {key: list(each) for key, each in self._by_partition.items()}
        return made

    def add(self, ranges: Iterable[SentRange]) -> None:
        """Add the ranges of a part."""
        for partition, first_offset, record_count, is_duplicate in ranges:
            own = self._by_partition.setdefault(partition, [])
            if own:
                _partition, start, count, was_duplicate = own[-1]
                if start + count == first_offset:
                    own[-1] = SentRange(partition, start, count + record_count, was_duplicate)
                    continue
            own.append(SentRange(partition, first_offset, record_count, is_duplicate))

    def ranges(self) -> list[SentRange]:
        """Return all ranges, those of one partition after the other."""
        return [each for own in self._by_partition.values() for each in own]
