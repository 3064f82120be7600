"""Errors of readers on Spark for damage and lost offsets, with code and detail.

Thread-safety: pure functions. Nothing here imports pyspark.
"""

from __future__ import annotations

import logging

from kafkalog._core.status import STATUS_CODES, status_meaning
from kafkalog.errors import (
    BatchTooLargeError,
    KafkaLogError,
    OffsetOutOfRangeError,
    UnsupportedCodecError,
)
from kafkalog.log.ranges.damage import Damage
from kafkalog.records.batch_view import BatchView
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.plan import DataLoss, LossRule, SplitRange, resolve_loss

__all__ = ["error_of_batch", "error_of_damage", "resume_after"]

logger = logging.getLogger(__name__)


def error_of_damage(
    split_range: SplitRange, damage: Damage, max_batch_bytes: int
) -> KafkaLogSparkError:
    """Return the error for bytes that are no batch, or a batch above the size limit."""
    corrupt_range = damage.corrupt_range
    detail: dict[str, object] = {
        "topic": split_range.topic,
        "partition": split_range.partition,
        "path": str(corrupt_range.path),
        "position": corrupt_range.position,
        "size_bytes": corrupt_range.size_bytes,
        "base_offset": corrupt_range.first_offset,
        "next_offset": corrupt_range.next_offset,
    }
    if damage.unknown_magic is not None:
        return KafkaLogSparkError(
            ErrorCode.UNSUPPORTED,
            f"a batch of format {damage.unknown_magic} at position {corrupt_range.position} of"
            f" {corrupt_range.path}; formats 0 to 2 are known",
            magic=damage.unknown_magic,
            **detail,
        )
    code, what = ErrorCode.CORRUPT_BATCH, status_meaning(STATUS_CODES[corrupt_range.reason])
    if damage.batch_bytes is not None:
        code = ErrorCode.BATCH_TOO_LARGE
        what = (
            f"a batch of {damage.batch_bytes} bytes, where maxBatchBytes allows {max_batch_bytes}"
        )
    return KafkaLogSparkError(
        code,
        f"{what}: {corrupt_range.size_bytes} bytes at position {corrupt_range.position}"
        f" of {corrupt_range.path}; offsets {corrupt_range.first_offset} to"
        f" {corrupt_range.next_offset - 1} may be missing",
        reason=corrupt_range.reason,
        **detail,
    )


def error_of_batch(
    split_range: SplitRange, view: BatchView, error: KafkaLogError
) -> KafkaLogSparkError:
    """Return the error for a batch with a good CRC that cannot be decoded."""
    header = view.header
    code = ErrorCode.CORRUPT_BATCH
    if isinstance(error, UnsupportedCodecError):
        code = ErrorCode.UNSUPPORTED
    elif isinstance(error, BatchTooLargeError):
        code = ErrorCode.BATCH_TOO_LARGE
    return KafkaLogSparkError(
        code,
        f"{type(error).__name__}: {error}",
        topic=split_range.topic,
        partition=split_range.partition,
        path=str(view.path),
        position=view.position,
        size_bytes=header.size_bytes,
        base_offset=header.base_offset,
        next_offset=header.next_offset,
    )


def resume_after(split_range: SplitRange, error: OffsetOutOfRangeError, rule: LossRule) -> int:
    """
    Return the offset to resume at after the log has lost planned offsets of a range.

    Raises:
        KafkaLogSparkError: DATA_LOSS, if the rule is to fail.
    """
    log_start, log_end = error.log_start_offset or 0, error.log_end_offset or 0
    requested = error.requested or 0
    if requested > log_end:
        loss = DataLoss("truncated", min(log_end, split_range.end), requested, log_start, log_end)
    else:
        end = min(log_start, split_range.end)
        loss = DataLoss("deleted", requested, end, log_start, log_end)
    resume_offset = resolve_loss(loss, rule, split_range.topic, split_range.partition)
    logger.warning(
        "%s-%d: offsets %d to %d are gone (%s); reading resumes at %d",
        split_range.topic,
        split_range.partition,
        loss.first,
        loss.end - 1,
        loss.cause,
        resume_offset,
    )
    return resume_offset
