"""Results of a conversion of a log: its progress, its report, the bytes that it left out.

Thread-safety: immutable values; the report inside belongs to a finished conversion.
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
    Progress of a conversion.

    Attributes:
        source: the partition directory.
        stage: "converting" or "verifying".
        done_bytes, total_bytes: bytes of the source, in this stage.
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
        path: segment file; `position`, `size_bytes`: the range in it.
        first_offset: first offset that may be missing; `next_offset`: one above the last.
        reason: the reason.
        kept: whether they were copied unchanged, without being read.
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
    Conversion of one segment of the source.

    Attributes:
        base_offset: its base offset, before and after.
        source_bytes, result_bytes: size of its `.log` file, and of its results.
        was_converted: False if it was copied byte for byte, or left unchanged.
    """

    base_offset: int
    source_bytes: int
    result_bytes: int
    was_converted: bool


@dataclass(frozen=True, slots=True)
class LogConversion:
    """
    Conversion of one log.

    Attributes:
        source, target: partition directories; the same for a conversion in place.
        report: records and batches.
        segments: conversion of each segment, by base offset.
        segment_count: number of segments after it.
        source_bytes, result_bytes: size of the `.log` files before and after.
        log_start_offset, log_end_offset: the range, which stays.
        left_out: bytes that could not be converted; only torn tails unless on_corrupt="skip".
        verified: whether the result was read and has the same digest of records.
        duration_ms: its duration.
        is_complete: False if an error ended a conversion in place: `segments` are the converted
            ones, the others are unchanged.
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
        """Number of bytes by which the segments shrank; negative if they have grown."""
        return self.source_bytes - self.result_bytes


def corrupt_range_as_skipped(corrupt_range: CorruptRange) -> SkippedBytes:
    """Return the report of a corrupt range."""
    return SkippedBytes(
        corrupt_range.path,
        corrupt_range.position,
        corrupt_range.size_bytes,
        corrupt_range.first_offset,
        corrupt_range.next_offset,
        f"damaged: {corrupt_range.reason}",
    )


def tail_as_skipped(tail: TruncatedTail, end_offset: int) -> SkippedBytes:
    """Return the report of a torn tail after the log end."""
    return SkippedBytes(
        tail.path,
        tail.position,
        tail.size_bytes,
        end_offset,
        end_offset,
        f"torn tail: {tail.reason}",
    )
