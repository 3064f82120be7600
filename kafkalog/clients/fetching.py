"""Assigned partition of a consumer: its position, and the records from there on.

Thread-safety: none; it belongs to the thread of its consumer. The log calls `on_append` from any
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kafkalog._core.record import Record
from kafkalog.errors import KafkaLogError, OffsetOutOfRangeError
from kafkalog.log.isolation import Isolation
from kafkalog.log.log import Log
from kafkalog.log.reading import OnCorrupt
from kafkalog.model import TopicPartition

__all__ = ["AssignedPartition"]

# Attempts of one fetch while truncations cut the end of what it reads.
ATTEMPTS: Final = 5


class AssignedPartition:
    """
    Partition that a consumer reads.

    Args:
        where: the partition.
        log: its log.
        isolation, on_corrupt: as for `Log.records`.
        on_append: called when there may be new records.

    Attributes:
        position: offset of the next record for the user; None until it is needed.
        topic_id: the topic id of the log when it was assigned.
        is_paused: whether `poll` skips the partition.
        turn: number of times that the position was set; it ends iterations that began before.
    """

    __slots__ = (
        "_ahead",
        "_end",
        "_isolation",
        "_on_corrupt",
        "_records",
        "_unwatch",
        "is_paused",
        "log",
        "position",
        "topic_id",
        "turn",
        "where",
    )

    def __init__(
        self,
        where: TopicPartition,
        log: Log,
        isolation: Isolation,
        on_corrupt: OnCorrupt,
        on_append: Callable[[], object],
    ) -> None:
        self.where = where
        self.log = log
        self.topic_id = log.topic_id
        self.position: int | None = None
        self.is_paused = False
        self.turn = 0
        self._isolation: Isolation = isolation
        self._on_corrupt: OnCorrupt = on_corrupt
        self._records: Iterator[Record] | None = None
        self._end = -1
        # Position after all fetched records, while they are handed out one at a time.
        self._ahead: int | None = None
        self._unwatch = log.watch(on_append)

    @property
    def end_offset(self) -> int:
        """End offset of readable records."""
        if self._isolation == "read_committed":
            return self.log.last_stable_offset
        return self.log.high_watermark

    def pause(self) -> None:
        """Skip the partition in `poll` until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Read the partition again."""
        self.is_paused = False

    def seek(self, offset: int) -> None:
        """Set the position."""
        self.position = offset
        self.turn += 1
        self._records = None
        self._ahead = None

    def fetch(self, count: int) -> list[Record]:
        """
        Return at most `count` next records, and set the position after them.

        Raises:
            OffsetOutOfRangeError: the position is not in the log.
            CorruptRecordError: it is in a corrupt range; the records before were returned first.
        """
        found: list[Record] = []
        attempts = ATTEMPTS
        while len(found) < count:
            try:
                records = self._begin() if self._records is None else self._records
                if records is None:
                    break
                self._collect(records, count, found)
            except KafkaLogError as error:
                self._records = None
                if found:
                    break
                attempts -= 1
                if not attempts or not self._was_end_cut(error):
                    raise
        return found

    def _was_end_cut(self, error: KafkaLogError) -> bool:
        """Return whether a truncation has cut the end of the read, and not the position."""
        position = self.position
        return (
            isinstance(error, OffsetOutOfRangeError)
            and position is not None
            and self.log.log_start_offset <= position <= self.end_offset
        )

    def begin_hand_out(self, offset: int) -> None:
        """Set the position to the first of the fetched records, which are handed out one by one."""
        self._ahead = self.position
        self.position = offset

    def hand_out(self, records: list[Record], turn: int) -> Iterator[Record]:
        """
        Yield fetched records, with the position after each, until another call sets the position.

        Args:
            records: the result of `fetch`, from the offset of `begin_hand_out` on.
            turn: value of `turn` when they were fetched.
        """
        for record in records:
            if self.turn != turn:
                return
            self.position = record.offset + 1
            yield record
        # After all fetched offsets, not only the last record.
        if self._ahead is not None:
            self.position, self._ahead = self._ahead, None

    def rewind(self) -> None:
        """Fetch records again that were fetched and not handed out."""
        if self._ahead is not None and self.position is not None:
            self.seek(self.position)

    def close(self) -> None:
        """Release the log."""
        self._records = None
        self._unwatch()

    def _begin(self) -> Iterator[Record] | None:
        """Start to read at the position; return None if there are no records yet."""
        assert self.position is not None
        self._end = self.end_offset
        if self.log.log_start_offset <= self._end == self.position:
            return None
        self._records = self.log.records(
            self.position, self._end, on_corrupt=self._on_corrupt, isolation=self._isolation
        )
        return self._records

    def _collect(self, records: Iterator[Record], count: int, found: list[Record]) -> None:
        """Move records to `found`; after the last record the position is the end of the read."""
        for record in records:
            found.append(record)
            self.position = record.offset + 1
            if len(found) == count:
                return
        # After offsets without records too: markers, aborted and removed records.
        self.position = max(self.position or 0, self._end)
        self._records = None
