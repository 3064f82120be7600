"""A run of batches that is ready for a log but for its offsets.

Packing and validation make runs outside the log's lock, with offsets that count from zero;
stamping, under the lock, moves them to the log end and costs a few bytes a batch, because no CRC
covers them.

Thread-safety: a run belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from typing_extensions import Buffer

from kafkalog._core.stamp import assign_offsets, set_entry_offset
from kafkalog.errors import OffsetsOutOfOrderError
from kafkalog.model import NOTHING_REWRITTEN, AppendInfo, Rewriting
from kafkalog.records.batch_facts import BatchFacts, newest, shifted

__all__ = ["Draft", "PackedRun"]

_NONE: Final = -1


class Draft(NamedTuple):
    """
    Batches, and the facts of each.

    Attributes:
        data: back to back.
        batches: in order.
        has_wrappers: whether one is a wrapper of an old format.
    """

    data: Buffer
    batches: Sequence[BatchFacts]
    has_wrappers: bool = False


@dataclass(slots=True)
class PackedRun:
    """
    Batches back to back.

    Attributes:
        data: the batches; writable until they are stamped.
        batches: facts of each, in order.
        record_count: records in all of them.
        log_append_time_ms: time that all records carry, None where they keep their own.
        assign_offsets: whether stamping gives the batches new offsets.
        rewriting: what was done to make them.
        has_wrappers: whether a batch is a wrapper of an old format, stamped with its last offset.
        made_at: makes the batches for another offset of the first record, where that takes more
            than a stamp; None where it does not.
        has_producers: whether a batch names a producer, whose state the log has to ask.
    """

    data: bytearray
    batches: Sequence[BatchFacts]
    record_count: int
    log_append_time_ms: int | None = None
    assign_offsets: bool = True
    rewriting: Rewriting = NOTHING_REWRITTEN
    has_wrappers: bool = False
    made_at: Callable[[int], Draft] | None = None
    has_producers: bool = False

    def stamp(self, log_end_offset: int, partition_leader_epoch: int) -> AppendInfo:
        """
        Give the batches their offsets, from `log_end_offset` on; return what they are.

        Raises:
            OffsetsOutOfOrderError: the batches keep offsets that begin below the log end.
            RecordTooLargeError: a wrapper that had to be made for its offset has become too large.
        """
        batches = self.batches
        if not batches:
            return self._info(log_end_offset, log_end_offset - 1, _NONE, _NONE)
        if self.assign_offsets:
            shift = log_end_offset - batches[0].base_offset
            if shift and self.made_at is not None:
                draft = self.made_at(log_end_offset)
                self.data, batches = bytearray(draft.data), draft.batches
            else:
                batches = shifted(batches, shift)
            self.batches = batches
            self._stamp_offsets(log_end_offset, partition_leader_epoch)
        elif batches[0].base_offset < log_end_offset:
            raise OffsetsOutOfOrderError(
                f"the first batch begins at offset {batches[0].base_offset}, and the log already"
                f" ends at {log_end_offset}",
                position=0,
                base_offset=batches[0].base_offset,
            )
        largest = newest(batches)
        return self._info(
            batches[0].base_offset,
            batches[-1].last_offset,
            largest.max_timestamp,
            largest.shallow_offset,
        )

    def _stamp_offsets(self, log_end_offset: int, partition_leader_epoch: int) -> None:
        if not self.has_wrappers:
            assign_offsets(
                self.data,
                base_offset=log_end_offset,
                partition_leader_epoch=partition_leader_epoch,
            )
            return
        # How many offsets a wrapper takes does not stand in it; only old formats are beside it.
        position = 0
        for facts in self.batches:
            set_entry_offset(self.data, position, offset=facts.last_offset)
            position += facts.size_bytes

    def _info(
        self, first_offset: int, last_offset: int, max_timestamp: int, shallow_offset: int
    ) -> AppendInfo:
        return AppendInfo(
            first_offset,
            last_offset,
            self.record_count,
            len(self.batches),
            len(self.data),
            self.log_append_time_ms,
            max_timestamp,
            shallow_offset,
            self.rewriting,
        )
