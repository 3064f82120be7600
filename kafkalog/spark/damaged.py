"""What readers on Spark say of damage and of offsets that are gone: errors with code and detail.

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
from kafkalog.spark.plan import DataLoss, LossRule, SplitRange, settle_loss

__all__ = ["error_of_batch", "error_of_damage", "go_on_behind"]

logger = logging.getLogger(__name__)


def error_of_damage(wanted: SplitRange, damage: Damage, max_batch_bytes: int) -> KafkaLogSparkError:
    """Return what is wrong with bytes that make no batch, or one too large."""
    fence = damage.fence
    detail: dict[str, object] = {
        "topic": wanted.topic,
        "partition": wanted.partition,
        "path": str(fence.path),
        "position": fence.position,
        "size_bytes": fence.size_bytes,
        "base_offset": fence.first_offset,
        "next_offset": fence.next_offset,
    }
    if damage.unknown_magic is not None:
        return KafkaLogSparkError(
            ErrorCode.UNSUPPORTED,
            f"a batch of format {damage.unknown_magic} at position {fence.position} of"
            f" {fence.path}; formats 0 to 2 are known",
            magic=damage.unknown_magic,
            **detail,
        )
    code, what = ErrorCode.CORRUPT_BATCH, status_meaning(STATUS_CODES[fence.reason])
    if damage.batch_bytes is not None:
        code = ErrorCode.BATCH_TOO_LARGE
        what = (
            f"a batch of {damage.batch_bytes} bytes, where maxBatchBytes allows {max_batch_bytes}"
        )
    return KafkaLogSparkError(
        code,
        f"{what}: {fence.size_bytes} bytes at position {fence.position} of {fence.path};"
        f" offsets {fence.first_offset} to {fence.next_offset - 1} may be missing",
        reason=fence.reason,
        **detail,
    )


def error_of_batch(wanted: SplitRange, view: BatchView, error: KafkaLogError) -> KafkaLogSparkError:
    """Return what is wrong with a batch whose sum is right, and which cannot be decoded."""
    header = view.header
    code = ErrorCode.CORRUPT_BATCH
    if isinstance(error, UnsupportedCodecError):
        code = ErrorCode.UNSUPPORTED
    elif isinstance(error, BatchTooLargeError):
        code = ErrorCode.BATCH_TOO_LARGE
    return KafkaLogSparkError(
        code,
        f"{type(error).__name__}: {error}",
        topic=wanted.topic,
        partition=wanted.partition,
        path=str(view.path),
        position=view.position,
        size_bytes=header.size_bytes,
        base_offset=header.base_offset,
        next_offset=header.next_offset,
    )


def go_on_behind(wanted: SplitRange, error: OffsetOutOfRangeError, rule: LossRule) -> int:
    """
    Return the offset to go on from where the log has lost offsets of a range since it was planned.

    Raises:
        KafkaLogSparkError: DATA_LOSS, where that is the rule.
    """
    log_start, log_end = error.log_start_offset or 0, error.log_end_offset or 0
    requested = error.requested or 0
    if requested > log_end:
        loss = DataLoss("truncated", min(log_end, wanted.end), requested, log_start, log_end)
    else:
        end = min(log_start, wanted.end)
        loss = DataLoss("deleted", requested, end, log_start, log_end)
    go_on = settle_loss(loss, rule, wanted.topic, wanted.partition)
    logger.warning(
        "%s-%d: offsets %d to %d are gone (%s); reading goes on at %d",
        wanted.topic,
        wanted.partition,
        loss.first,
        loss.end - 1,
        loss.cause,
        go_on,
    )
    return go_on
