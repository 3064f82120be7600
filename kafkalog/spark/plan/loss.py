"""Detection of lost records that a reader needs. A hole is not a loss.

Records are lost if retention, a deletion or a truncation removed offsets that were to be read and
had not been, or if the topic is another one under the same name. Offsets between the log start and
the log end are never lost: those without a record were compacted away, or are those of transaction
markers.

Thread-safety: pure functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError

__all__ = ["DataLoss", "LossRule", "find_loss", "resolve_loss"]

LossRule = Literal["fail", "earliest", "latest"]
Cause = Literal["deleted", "truncated", "another topic"]


@dataclass(frozen=True, slots=True)
class DataLoss:
    """
    Requested offsets that are gone.

    Attributes:
        cause: deleted at the start, truncated at the end, or the whole topic recreated.
        first, end: the lost part of the requested range; the end is exclusive.
        log_start_offset, log_end_offset: of the log.
    """

    cause: Cause
    first: int
    end: int
    log_start_offset: int
    log_end_offset: int


def find_loss(
    start: int,
    end: int | None,
    *,
    log_start_offset: int,
    log_end_offset: int,
    same_topic: bool = True,
) -> DataLoss | None:
    """
    Return the lost part of a range, None if nothing is lost.

    Args:
        start: first offset that was not read yet.
        end: one past the last requested one, None for no end.
        log_start_offset, log_end_offset: present ones of the log.
        same_topic: False if the topic was recreated.
    """
    if not same_topic:
        next_offset = start if end is None else max(start, end)
        return DataLoss("another topic", start, next_offset, log_start_offset, log_end_offset)
    highest = start if end is None else max(start, end)
    if highest > log_end_offset:
        first = max(start, log_end_offset) if end is not None and start <= end else log_end_offset
        return DataLoss("truncated", first, highest, log_start_offset, log_end_offset)
    below = log_start_offset if end is None else min(end, log_start_offset)
    if start < below:
        return DataLoss("deleted", start, below, log_start_offset, log_end_offset)
    return None


def resolve_loss(loss: DataLoss, rule: LossRule, topic: str, partition: int) -> int:
    """
    Return the offset to resume at after a loss.

    The earliest is the first one after the loss. For a log that was truncated that is its end:
    everything below was read already.

    Raises:
        KafkaLogSparkError: DATA_LOSS, if the rule is to fail.
    """
    if rule == "latest" or (rule == "earliest" and loss.cause == "truncated"):
        return loss.log_end_offset
    if rule == "earliest":
        return loss.log_start_offset
    reason = {
        "deleted": f"the log begins at {loss.log_start_offset} now",
        "truncated": f"the log ends at {loss.log_end_offset} now",
        "another topic": "the topic was deleted and created again",
    }[loss.cause]
    raise KafkaLogSparkError(
        ErrorCode.DATA_LOSS,
        f"{topic}-{partition}: offsets from {loss.first} on, up to {loss.end}, are gone: {reason};"
        " set failOnDataLoss=false, or onDataLoss, to resume",
        topic=topic,
        partition=partition,
        cause=loss.cause,
        first=loss.first,
        end=loss.end,
        log_start_offset=loss.log_start_offset,
        log_end_offset=loss.log_end_offset,
    )
