"""Drawn batches as a log on a disk, to be asked what a cleaning of it would do."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from kafkalog import Log
from kafkalog.cleaner.log_to_clean import LogToClean
from kafkalog.cleaner.record_filter import CleaningRules
from tests.support.cleaning_cases import DirtyLog
from tests.support.logs import manual_log
from tests.support.manual_time import ManualClock
from tests.support.reference_compaction import ReferenceCleaning
from tests.support.simulated_disk import SimulatedDisk

__all__ = ["NOW_MS", "laid_out", "reference_of"]

# Delete horizons of drawn batches lie around it.
NOW_MS = 1000
DIRECTORY = Path("/data/orders-0")


def laid_out(
    log: DirtyLog,
    cuts: Collection[int] = (),
    *,
    clock: ManualClock | None = None,
    **settings: Any,
) -> Log:
    """
    Return a log of these batches, in memory.

    Args:
        log: the batches.
        cuts: numbers of batches before which a segment begins.
        clock: its time; a clock fixed at NOW_MS if None.
        settings: of the log.
    """
    clock = clock or ManualClock(NOW_MS)
    opened = manual_log(
        DIRECTORY,
        clock=clock,
        filesystem=SimulatedDisk(clock=clock),
        cleanup_policy=("compact",),
        message_timestamp_type="CreateTime",
        **settings,
    )
    for number, batch in enumerate(log.batches):
        if number in cuts:
            opened.roll()
        opened.append_batches(batch, assign_offsets=False)
    return opened


def reference_of(
    log: DirtyLog, target: LogToClean, end_offset: int, latest_offset: int | None = None
) -> ReferenceCleaning:
    """Return what a cleaning of the log up to an offset must leave of the batches below it."""
    count = sum(end <= end_offset for end in log.ends)
    first_dirty = target.span().first_dirty
    return ReferenceCleaning(
        data=b"".join(log.batches[:count]),
        rules=CleaningRules(
            now_ms=target.now_ms,
            delete_retention_ms=target.config.delete_retention_ms,
            end_offset=end_offset,
            last_batches=target.last_batches,
            max_message_bytes=target.config.max_message_bytes,
        ),
        first_dirty=first_dirty,
        latest_offset=end_offset - 1 if latest_offset is None else latest_offset,
        aborted=log.aborted,
        old_tombstones_stay=target.old_tombstones_stay(0, first_dirty),
    )
