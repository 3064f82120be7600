"""What a conversion of a log tells: how far it is, what it did, what it had to leave out.

Thread-safety: immutable values; the report inside belongs to a conversion that is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.log.report import TruncatedTail
from kafkalog.records.conversion.report import ConversionReport

__all__ = [
    "ConversionProgress",
    "LogConversion",
    "SegmentConversion",
    "SkippedBytes",
    "corrupt_range_as_skipped",
    "tail_as_skipped",
]


@dataclass(frozen=True, slots=True)
class ConversionProgress:
    """
    How far a conversion has come.

    Attributes:
        source: the partition directory.
        stage: "converting" or "verifying".
        done_bytes, total_bytes: of the source, in this stage.
    """

    source: Path
    stage: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class SkippedBytes:
    """
    Bytes of the source that could not be converted.

    Attributes:
        path: segment file; `position`, `size_bytes`: where in it.
        first_offset: first offset that may be missing; `next_offset`: one past the last.
        reason: why.
        kept: whether they were taken over as they are, unread.
    """

    path: Path
    position: int
    size_bytes: int
    first_offset: int
    next_offset: int
    reason: str
    kept: bool = False


@dataclass(frozen=True, slots=True)
class SegmentConversion:
    """
    What became of one segment of the source.

    Attributes:
        base_offset: its base offset, before and after.
        source_bytes, result_bytes: its `.log` file before, and those that came of it.
        was_converted: False where it was copied byte for byte, or left as it is.
    """

    base_offset: int
    source_bytes: int
    result_bytes: int
    was_converted: bool


@dataclass(frozen=True, slots=True)
class LogConversion:
    """
    What a conversion of one log did.

    Attributes:
        source, target: partition directories; the same for a conversion in place.
        report: records and batches.
        segments: what became of each segment, by base offset.
        segment_count: segments after it.
        source_bytes, result_bytes: the `.log` files before and after.
        log_start_offset, log_end_offset: the range, which stays.
        left_out: what could not be converted; empty unless on_corrupt="skip", but for torn tails.
        verified: whether the result was read back and has the same digest of records.
        duration_ms: how long it took.
        is_complete: False where an error ended a conversion in place: `segments` are those that it
            had come to, the others are what they were.
    """

    source: Path
    target: Path
    report: ConversionReport
    segments: tuple[SegmentConversion, ...]
    segment_count: int
    source_bytes: int
    result_bytes: int
    log_start_offset: int
    log_end_offset: int
    left_out: tuple[SkippedBytes, ...]
    verified: bool
    duration_ms: int
    is_complete: bool = True

    @property
    def saved_bytes(self) -> int:
        """How much smaller the segments are; negative where they have grown."""
        return self.source_bytes - self.result_bytes


def corrupt_range_as_skipped(corrupt_range: CorruptRange) -> SkippedBytes:
    """Return what is told of a damaged range."""
    return SkippedBytes(
        corrupt_range.path,
        corrupt_range.position,
        corrupt_range.size_bytes,
        corrupt_range.first_offset,
        corrupt_range.next_offset,
        f"damaged: {corrupt_range.reason}",
    )


def tail_as_skipped(tail: TruncatedTail, end_offset: int) -> SkippedBytes:
    """Return what is told of a torn tail behind the log end."""
    return SkippedBytes(
        tail.path,
        tail.position,
        tail.size_bytes,
        end_offset,
        end_offset,
        f"torn tail: {tail.reason}",
    )
