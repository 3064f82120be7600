"""Bytes and metadata of the runs that logs append, to compare two of them."""

from __future__ import annotations

from typing import Any

from kafkalog._core.memory_records import MemoryRecords
from kafkalog.model import NOTHING_REWRITTEN

__all__ = ["run_contents"]


def run_contents(run: MemoryRecords) -> tuple[Any, ...]:
    """Return bytes and metadata of a run, but for its leader epoch."""
    return (
        bytes(run.data),
        list(run.batches),
        run.record_count,
        run.needs_offsets,
        run.rewriting or NOTHING_REWRITTEN,
        run.has_producers,
        run.log_append_time_ms,
    )
