"""What the runs that logs append say of themselves, to hold one against another."""

from __future__ import annotations

from typing import Any

from kafkalog._core.memory_records import MemoryRecords
from kafkalog.model import NOTHING_REWRITTEN

__all__ = ["run_contents"]


def run_contents(run: MemoryRecords) -> tuple[Any, ...]:
    """Everything that a run says, but for its leader epoch."""
    return (
        bytes(run.data),
        list(run.batches),
        run.record_count,
        run.needs_offsets,
        run.rewriting or NOTHING_REWRITTEN,
        run.has_producers,
        run.log_append_time_ms,
    )
