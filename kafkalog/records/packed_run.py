"""A run of batches that is ready for a log but for its offsets.

Packing and validation make runs outside the log's lock, with offsets that count from zero;
stamping, under the lock, moves them to the log end and costs a few bytes a batch, because no CRC
covers them.

Thread-safety: a run belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from typing_extensions import Buffer

from kafkalog._core.run_facts import RunFacts
from kafkalog.errors import OffsetsOutOfOrderError
from kafkalog.model import NOTHING_REWRITTEN, AppendInfo, Rewriting

__all__ = ["Draft", "PackedRun"]

_NONE: Final = -1


class Draft(NamedTuple):
    """
    Batches, and the facts of each.

    Attributes:
        data: back to back.
        batches: in order.
        is_wrapper: whether it is one batch, a wrapper of an old format.
    """

    data: Buffer
    batches: RunFacts
    is_wrapper: bool = False


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
        made_at: makes the batches for another offset of the first record, where that takes more
            than a stamp; None where it does not.
        has_producers: whether a batch names a producer, whose state the log has to ask.
    """

    data: bytearray
    batches: RunFacts
    record_count: int
    log_append_time_ms: int | None = None
    assign_offsets: bool = True
    rewriting: Rewriting = NOTHING_REWRITTEN
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
        if not self.assign_offsets:
            span = batches.span()
            if span[0] < log_end_offset:
                raise OffsetsOutOfOrderError(
                    f"the first batch begins at offset {span[0]}, and the log already ends at"
                    f" {log_end_offset}",
                    position=0,
                    base_offset=span[0],
                )
            return self._info(*span)
        if self.made_at is not None and batches[0].base_offset != log_end_offset:
            draft = self.made_at(log_end_offset)
            self.data, batches = bytearray(draft.data), draft.batches
            self.batches = batches
        return self._info(*batches.stamp(self.data, log_end_offset, partition_leader_epoch))

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
