"""Result of the parts of one `send_many`, which a producer gets one after the other.

A call of many records is passed on in parts, so that no part keeps the interpreter for long. Their
futures are joined here: the call is done with the last of them.

Thread-safety: parts are added by one thread; they end in any. The lock guards the count of parts
that have not ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafkalog.clients.many_records import SentMany, SentRange

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
        # Each with the number of its first record.
        self._parts: list[tuple[int, SentMany]] = []
        self._refused_rows = range(0)
        self._refusal: BaseException | None = None

    @property
    def is_done(self) -> bool:
        """True if all parts were added and have ended."""
        return not self._open_count

    @property
    def error(self) -> BaseException | None:
        """The error of the first record that is not in the log; of a call that is done."""
        for _first_row, part in list(self._parts):
            if part.done() and (error := part.exception(0)) is not None:
                return error
        return self._refusal

    @property
    def delivered(self) -> list[SentRange]:
        """The ranges that are in the log so far; ranges of parts that follow each other as one."""
        found: dict[int, list[SentRange]] = {}
        for _first_row, part in list(self._parts):
            for each in part.delivered:
                ranges = found.setdefault(each.partition, [])
                if ranges and ranges[-1].first_offset + ranges[-1].record_count == (
                    each.first_offset
                ):
                    before = ranges.pop()
                    count = before.record_count + each.record_count
                    each = each._replace(first_offset=before.first_offset, record_count=count)
                ranges.append(each)
        return [each for ranges in found.values() for each in ranges]

    @property
    def failed_rows(self) -> list[int]:
        """Numbers of the records that will not be in the log, counted from 0, in order."""
        parts = list(self._parts)
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
        with self._lock:
            self._open_count -= 1
            is_done = not self._open_count
        if is_done:
            self._on_done()
