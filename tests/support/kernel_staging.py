"""The division of batches among segments by `RollPlanner`, called as by a log: per stage.

To be compared with `slow_staging`; each run is planned, undone, and planned again.
"""

from __future__ import annotations

from kafkalog._core.batch_metadata import BatchFacts, BatchMetadata
from kafkalog._engine.roll_planner import RollPlanner
from tests.support.slow_staging import SegmentFiles, StagingRules

__all__ = ["KernelStaging"]


class KernelStaging:
    """
    The segments of a log that runs are appended to, as `SlowStaging` has them.

    Attributes:
        segments: base offset, size, batches, and both index files of each.
    """

    def __init__(self, rules: StagingRules, base_offset: int, now_ms: int) -> None:
        self.rules = rules
        self.segments: list[SegmentFiles] = []
        self.begin(base_offset, now_ms)

    def begin(self, base_offset: int, now_ms: int) -> None:
        """Begin a segment."""
        rules = self.rules
        self.created_ms = now_ms
        self.stage = RollPlanner(
            base_offset,
            offset_entries_max=rules.offset_entries_max,
            time_entries_max=rules.time_entries_max,
        )
        self.stage.set_limits(
            segment_bytes=rules.segment_bytes,
            interval_bytes=rules.interval_bytes,
            roll_after_ms=rules.roll_after_ms,
        )
        self.segments.append((base_offset, 0, [], b"", b""))

    def note(self, batches: list[BatchFacts], size: int) -> None:
        """Take batches and ready entries into the last segment."""
        base, held, facts, offsets, times = self.segments[-1]
        more_offsets, more_times = self.stage.ready_entries()
        assert not self.stage.has_entries
        self.segments[-1] = (
            base, held + size, facts + batches, offsets + more_offsets, times + more_times
        )  # fmt: skip

    def append(self, batches: list[BatchFacts], now_ms: int) -> None:
        """Append a run."""
        facts, row = BatchMetadata(batches), 0
        while True:
            size_bytes = self.segments[-1][1]
            waited = 0 if self.stage.rolling_timestamp >= 0 else now_ms - self.created_ms
            self.stage.save()
            before = self.stage.plan(facts, row, size_bytes, waited)
            self.stage.restore()
            assert before == self.stage.plan(facts, row, size_bytes, waited)
            is_tried = before[0] == row and facts[row].base_offset == self.segments[-1][0]
            assert size_bytes or not is_tried, "a batch that no segment takes"
            self.note(facts[row : before[0]], before[1])
            row = before[0]
            if row == len(facts):
                return
            self.close()
            self.begin(facts[row].base_offset, now_ms)

    def close(self) -> None:
        """Seal the last segment."""
        self.stage.close()
        self.note([], 0)
