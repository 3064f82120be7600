"""One assigned partition: where its reader stands, and the records from there on.

Thread-safety: belongs to its consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafkalog._core.record import Record
from kafkalog.errors import KafkaLogError
from kafkalog.log.isolation import Isolation
from kafkalog.log.log import Log
from kafkalog.log.reading import OnCorrupt
from kafkalog.model import TopicPartition

__all__ = ["AssignedPartition"]


class AssignedPartition:
    """
    A partition that a consumer reads.

    Args:
        where: its name.
        log: its log.
        isolation, on_corrupt: as for `Log.records`.
        on_append: called when there may be more to read.

    Attributes:
        position: next offset that the consumer hands out; None before it was asked for.
        is_paused: whether it is left out for now.
        turn: counts the times that the position was set; an iteration of before is over.
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
        self.position: int | None = None
        self.is_paused = False
        self.turn = 0
        self._isolation: Isolation = isolation
        self._on_corrupt: OnCorrupt = on_corrupt
        self._records: Iterator[Record] | None = None
        self._end = -1
        # Behind what was fetched, while it is handed out one at a time.
        self._ahead: int | None = None
        self._unwatch = log.watch(on_append)

    @property
    def end_offset(self) -> int:
        """How far may be read now."""
        if self._isolation == "read_committed":
            return self.log.last_stable_offset
        return self.log.high_watermark

    def pause(self) -> None:
        """Leave the partition out of `poll` until `resume`."""
        self.is_paused = True

    def resume(self) -> None:
        """Read the partition again."""
        self.is_paused = False

    def seek(self, offset: int) -> None:
        """Go on at an offset."""
        self.position = offset
        self.turn += 1
        self._records = None
        self._ahead = None

    def fetch(self, count: int) -> list[Record]:
        """
        Return the next records, at most so many, and go on behind them.

        Raises:
            OffsetOutOfRangeError: the position is not in the log.
            CorruptRecordError: it is in a damaged range; those before were returned first.
        """
        found: list[Record] = []
        while len(found) < count:
            records = self._records
            if records is None:
                records = self._begin()
                if records is None:
                    break
            try:
                self._collect(records, count, found)
            except KafkaLogError:
                self._records = None
                if not found:
                    raise
                break
        return found

    def step_back(self, offset: int) -> None:
        """Stand at the first of records that were fetched: they are handed out one at a time."""
        self._ahead = self.position
        self.position = offset

    def hand_out(self, records: list[Record], turn: int) -> Iterator[Record]:
        """
        Yield fetched records, the position behind each, until the position is set elsewhere.

        Args:
            records: what `fetch` returned, from the offset of `step_back` on.
            turn: `turn` when they were fetched.
        """
        for record in records:
            if self.turn != turn:
                return
            self.position = record.offset + 1
            yield record
        # Behind all that was fetched, too.
        if self._ahead is not None:
            self.position, self._ahead = self._ahead, None

    def rewind(self) -> None:
        """Fetch again what was fetched and not handed out."""
        if self._ahead is not None and self.position is not None:
            self.seek(self.position)

    def close(self) -> None:
        """Let go of the log."""
        self._records = None
        self._unwatch()

    def _begin(self) -> Iterator[Record] | None:
        """Begin to read from the position; None where nothing is there yet."""
        assert self.position is not None
        self._end = self.end_offset
        if self.log.log_start_offset <= self._end == self.position:
            return None
        self._records = self.log.records(
            self.position, self._end, on_corrupt=self._on_corrupt, isolation=self._isolation
        )
        return self._records

    def _collect(self, records: Iterator[Record], count: int, found: list[Record]) -> None:
        """Move records to `found`; behind the last one the position is where reading ended."""
        for record in records:
            found.append(record)
            self.position = record.offset + 1
            if len(found) == count:
                return
        # Behind what is not handed out, too: markers, aborted records, what compaction removed.
        self.position = max(self.position or 0, self._end)
        self._records = None
