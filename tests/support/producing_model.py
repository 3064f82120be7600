"""A log of producers as a list of batches: visible records and open transactions, by a walk.

Entries stay in the list when the log start passes over them: what a producer sends next follows
from all that it ever sent. `knows` returns whether the log must have it, too: facts below
its start it may have forgotten with an opening or a truncation.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kafkalog import BatchView, Log

__all__ = ["Entry", "ProducingModel", "entries_of"]


@dataclass(frozen=True, slots=True)
class Entry:
    """
    A batch, or with `ends` the marker of a transaction ("commit", "abort").

    `time` makes every batch ever appended another one.
    """

    first_offset: int
    last_offset: int
    time: int
    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1
    transactional: bool = False
    ends: str | None = None

    @property
    def next_sequence(self) -> int:
        """The next offset after its last record."""
        return self.sequence + self.last_offset - self.first_offset + 1


def entry_of(batch: BatchView) -> Entry:
    """Return what a batch is."""
    header, ends = batch.header, None
    if header.is_control:
        ends = batch.control_records()[0].type.name.lower()
    return Entry(
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        ends,
    )


def entries_of(log: Log) -> list[Entry]:
    """Return the batches of a log."""
    return [entry_of(batch) for batch in log.batches()]


@dataclass
class ProducingModel:
    """
    The expected content of a log.

    Attributes:
        entries: all batches since it was last reset, those below its start too.
        start_offset, end_offset: its range.
        high_watermark: None where it is the log end.
        waiting: transactions, (first offset, marker), whose marker the high watermark has not
            passed since it was written.
        contents: (leader epoch, offset) -> the batch that ever was there, lost ones too.
    """

    entries: list[Entry] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = 0
    high_watermark: int | None = None
    waiting: list[tuple[int, int]] = field(default_factory=list)
    contents: dict[tuple[int, int], Entry] = field(default_factory=dict)

    # Operations.

    def append(self, entry: Entry) -> None:
        """Take a batch that was appended; a marker ends what its producer has open."""
        first = self.open().get(entry.producer_id)
        if entry.ends and first is not None and self.high_watermark is not None:
            self.waiting.append((first, entry.first_offset))
        self.entries.append(entry)
        self.end_offset = entry.last_offset + 1

    def cut(self, offset: int) -> None:
        """Truncate: a batch that reaches `offset` goes as a whole."""
        self.entries = [each for each in self.entries if each.last_offset < offset]
        self.end_offset = offset

    def restart(self, offset: int) -> None:
        """Reset the log."""
        self.entries, self.waiting = [], []
        self.start_offset = self.end_offset = offset
        if self.high_watermark is not None:
            self.high_watermark = offset

    def set_high_watermark(self, offset: int | None) -> None:
        """Move it, into the log's range."""
        if offset is not None:
            offset = max(self.start_offset, min(offset, self.end_offset))
        self.high_watermark = offset
        passed = self.end_offset if offset is None else offset
        self.waiting = [each for each in self.waiting if each[1] >= passed]

    # Facts.

    def present(self) -> list[Entry]:
        """Return the batches that the log serves."""
        return [each for each in self.entries if each.last_offset >= self.start_offset]

    def of(self, producer_id: int) -> list[Entry]:
        """Return all of a producer."""
        return [each for each in self.entries if each.producer_id == producer_id]

    def last_data(self, producer_id: int) -> Entry | None:
        """Return a producer's last batch under its last epoch."""
        found = self.of(producer_id)
        data = [each for each in found if not each.ends and each.epoch == found[-1].epoch]
        return data[-1] if data else None

    def knows(self, producer_id: int) -> bool:
        """Return whether the log has to know the producer's last epoch and batch."""
        found = self.of(producer_id)
        last = self.last_data(producer_id) or (found[-1] if found else None)
        return last is not None and last.first_offset >= self.start_offset

    def open(self) -> dict[int, int]:
        """Return producer id -> first offset of its open transaction."""
        found: dict[int, int] = {}
        for each in self.entries:
            if each.ends:
                found.pop(each.producer_id, None)
            elif each.transactional:
                found.setdefault(each.producer_id, each.first_offset)
        return found

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the earliest transaction that is open or above the high watermark."""
        return min(
            [*self.open().values(), *(first for first, _marker in self.waiting)], default=None
        )

    @property
    def readable_offset(self) -> int:
        """The high watermark."""
        return self.end_offset if self.high_watermark is None else self.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end of the range that readers of committed records see."""
        first = self.first_unstable_offset
        return self.readable_offset if first is None else min(first, self.readable_offset)

    def committed(self) -> list[int]:
        """Return the offsets that readers of committed records see."""
        found: list[int] = []
        pending: dict[int, list[int]] = {}
        for each in self.entries:
            offsets = list(range(each.first_offset, each.last_offset + 1))
            if each.ends:
                taken = pending.pop(each.producer_id, [])
                found += taken if each.ends == "commit" else []
            elif each.transactional:
                pending.setdefault(each.producer_id, []).extend(offsets)
            else:
                found += offsets
        return sorted(each for each in found if self.start_offset <= each < self.last_stable_offset)

    # Crashes.

    def survivors(self, log: Log, begun: list[Entry], *, floor: int) -> ProducingModel:
        """
        Return the model of what a crash has left, once that was judged legal.

        Args:
            log: as it was opened.
            begun: what was being appended.
            floor: everything below it was on the disk, and is not being cut.
        """
        assert floor <= log.log_end_offset, f"{log.log_end_offset} of {floor} durable"
        legal, found = [*self.entries, *begun], entries_of(log)
        below = [each for each in legal if each.last_offset < log.log_start_offset]
        # A segment of which nothing came to the disk is missing between others, or its base is the
        # log end; readers and producers go by what is left.
        assert set(found) <= set(legal), f"{found} is left of {legal}"
        lost = set(legal) - set(found) - set(below)
        assert all(each.first_offset >= floor for each in lost), f"{lost} was durable"
        return replace(
            self,
            entries=[*below, *found],
            start_offset=log.log_start_offset,
            end_offset=log.log_end_offset,
            high_watermark=None,
            waiting=[],
        )

    def note_contents(self, log: Log) -> None:
        """Hold every batch under its leader epoch against those that ever were there."""
        for batch in log.batches():
            epoch = batch.header.partition_leader_epoch
            if epoch >= 0:
                entry = entry_of(batch)
                previous = self.contents.setdefault((epoch, entry.first_offset), entry)
                assert previous == entry, f"epoch {epoch} has {entry} where {previous} was"
