"""Whether records that a reader wanted are gone. A hole is none.

Records are lost where retention, a deletion or a truncation took away offsets that were to be read
and had not been, or where the topic is another one under the same name. What lies between the log
start and the log end is never lost: offsets without a record there were compacted away, or are
those of transaction markers.

Pure functions.
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
    Offsets that were wanted and are gone.

    Attributes:
        cause: deleted at the start, truncated at the end, or the whole topic made anew.
        first, end: of what was lost, as far as it was wanted; the end is exclusive.
        log_start_offset, log_end_offset: what the log has.
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
    Return what is lost of a range, None where nothing is.

    Args:
        start: first offset that was not read yet.
        end: one past the last one wanted, None for whatever there is.
        log_start_offset, log_end_offset: what the log has now.
        same_topic: whether it is the topic that it was.
    """
    if not same_topic:
        behind = start if end is None else max(start, end)
        return DataLoss("another topic", start, behind, log_start_offset, log_end_offset)
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
    Return the offset to go on from after a loss.

    The earliest is the first one behind the loss. Of a log that was cut off that is its end: what
    lies below was read already.

    Raises:
        KafkaLogSparkError: DATA_LOSS, where that is the rule.
    """
    if rule == "latest" or (rule == "earliest" and loss.cause == "truncated"):
        return loss.log_end_offset
    if rule == "earliest":
        return loss.log_start_offset
    reason = {
        "deleted": f"the log begins at {loss.log_start_offset} now",
        "truncated": f"the log ends at {loss.log_end_offset} now",
        "another topic": "the topic was deleted and made anew",
    }[loss.cause]
    raise KafkaLogSparkError(
        ErrorCode.DATA_LOSS,
        f"{topic}-{partition}: offsets from {loss.first} on, up to {loss.end}, are gone: {reason};"
        " failOnDataLoss=false, or onDataLoss, says where to go on",
        topic=topic,
        partition=partition,
        cause=loss.cause,
        first=loss.first,
        end=loss.end,
        log_start_offset=loss.log_start_offset,
        log_end_offset=loss.log_end_offset,
    )
