"""Bounds of each partition of a query: the users' start and end, resolved to offsets.

Thread-safety: functions of a snapshot; only times make them read files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog.clock import Clock, SystemClock
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.options import OffsetSpec, Position, ReadOptions
from kafkalog.spark.plan.log_files import offset_for_timestamp
from kafkalog.spark.plan.loss import LossRule, find_loss, resolve_loss
from kafkalog.spark.plan.snapshot import QuerySnapshot, retry_transient

__all__ = ["Bounds", "resolve", "resolve_bounds"]

Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Bounds:
    """Start and end in each partition of a snapshot; int64 of shape (p,), ends exclusive."""

    starts: Int64Array
    ends: Int64Array


def resolve_bounds(
    snapshot: QuerySnapshot, options: ReadOptions, *, clock: Clock | None = None
) -> Bounds:
    """
    Return the bounds of a batch.

    Args:
        snapshot: of the partitions.
        options: start and end, and the handling of lost records.
        clock: for relative times; the machine's if None.

    Raises:
        KafkaLogSparkError: OFFSET_INVALID, OFFSET_OUT_OF_RANGE, DATA_LOSS.
    """
    starts = resolve(snapshot, options.starting, clock=clock)
    ends = resolve(snapshot, options.ending, clock=clock)
    wrong = np.flatnonzero(starts > ends)
    for row in wrong.tolist():
        if _is_mistake(snapshot, options, row):
            raise _order_error(snapshot, options, row, starts, ends)
    ends = np.maximum(starts, ends)
    strange = (starts < snapshot.log_starts) & (starts < ends)
    strange |= (starts > snapshot.log_ends) | (ends > snapshot.log_ends)
    for row in np.flatnonzero(strange).tolist():
        starts[row], ends[row] = _resolve_row(snapshot, row, starts, ends, options.on_data_loss)
    ends = np.minimum(ends, snapshot.visible_ends)
    return Bounds(np.minimum(starts, ends), ends)


def _resolve_row(
    snapshot: QuerySnapshot, row: int, starts: Int64Array, ends: Int64Array, rule: LossRule
) -> tuple[int, int]:
    """Return the rest of a range that the log does not have completely."""
    start, end = int(starts[row]), int(ends[row])
    log_start, log_end = int(snapshot.log_starts[row]), int(snapshot.log_ends[row])
    topic, partition = snapshot.topics[row], int(snapshot.partitions[row])
    if end > log_end and rule == "fail":
        raise KafkaLogSparkError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic}-{partition}: offsets {start} to {end} were requested; the log ends"
            f" at {log_end}",
            topic=topic,
            partition=partition,
            start=start,
            end=end,
            log_start_offset=log_start,
            log_end_offset=log_end,
        )
    end = min(end, log_end)
    start = min(start, end)
    loss = find_loss(start, end, log_start_offset=log_start, log_end_offset=log_end)
    if loss is not None:
        start = resolve_loss(loss, rule, topic, partition)
    return min(start, max(end, log_start)), max(end, log_start)


def resolve(snapshot: QuerySnapshot, spec: OffsetSpec, *, clock: Clock | None = None) -> Int64Array:
    """
    Return the offset of a start or an end in each partition, int64 of shape (p,).

    A number is returned unchanged, whether the log has the offset or not.

    Raises:
        KafkaLogSparkError: OFFSET_INVALID if a list of single partitions is incomplete or has
            unknown ones; OFFSET_OUT_OF_RANGE if no record is as late as a required time.
    """
    now_ms = (SystemClock() if clock is None else clock).now_ms()
    if spec.default is not None:
        position = spec.default
        if position.kind == "earliest":
            return snapshot.log_starts.copy()
        if position.kind == "latest":
            return np.maximum(snapshot.visible_ends - position.value, snapshot.log_starts)
        positions = [position] * len(snapshot)
    else:
        positions = _listed(snapshot, spec)
    found = (_offset_at(snapshot, row, each, spec, now_ms) for row, each in enumerate(positions))
    return np.fromiter(found, np.int64, len(snapshot))


def _listed(snapshot: QuerySnapshot, spec: OffsetSpec) -> list[Position]:
    """Return the position of each partition; the list must be complete, and name no others."""
    names = snapshot.names()
    missing = [
        f"{topic}-{number}" for topic, number in names if (topic, number) not in spec.partitions
    ]
    foreign = spec.partitions.keys() - set(names) - snapshot.left_out
    if missing or foreign:
        parts = []
        if missing:
            parts.append(f"omits {', '.join(missing[:5])}")
        if foreign:
            shown = sorted(f"{topic}-{number}" for topic, number in foreign)
            parts.append(f"names {', '.join(shown[:5])}, which is not read")
        raise KafkaLogSparkError(
            ErrorCode.OFFSET_INVALID,
            f"{spec.option} {' and '.join(parts)}: every partition has to stand there, with -2 for"
            " the earliest and -1 for the latest offset",
            option=spec.option,
            missing=missing[:100],
            foreign=sorted(map(list, foreign))[:100],
        )
    return [spec.partitions[name] for name in names]


def _offset_at(
    snapshot: QuerySnapshot, row: int, position: Position, spec: OffsetSpec, now_ms: int
) -> int:
    match position.kind:
        case "earliest":
            return int(snapshot.log_starts[row])
        case "latest":
            end = int(snapshot.visible_ends[row]) - position.value
            return max(end, int(snapshot.log_starts[row]))
        case "offset":
            return position.value
        case "timestamp":
            timestamp_ms = position.value
        case "ago":
            timestamp_ms = max(now_ms - position.value, 0)
    disk, directory = snapshot.disk, snapshot.directories[row]
    bases, ends = snapshot.segments_of(row)
    start, end = int(snapshot.log_starts[row]), int(snapshot.visible_ends[row])
    found = retry_transient(
        lambda: offset_for_timestamp(disk, Path(directory), bases, ends, timestamp_ms, start),
        0,
        directory,
    )
    if found is not None and found < end:
        return found
    if spec.when_missing == "latest":
        return end
    topic, partition = snapshot.topics[row], int(snapshot.partitions[row])
    raise KafkaLogSparkError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"{topic}-{partition}: no record is as late as {timestamp_ms};"
        " startingOffsetsByTimestampStrategy=latest begins at the end then",
        option=spec.option,
        topic=topic,
        partition=partition,
        timestamp_ms=timestamp_ms,
    )


def _is_mistake(snapshot: QuerySnapshot, options: ReadOptions, row: int) -> bool:
    """
    Return True if a start above the end is a mistake of the user.

    A number is a mistake, and so is a time after another one. Anything that depends on the log
    leaves nothing to read for now.
    """
    start = _position_of(options.starting, snapshot, row)
    end = _position_of(options.ending, snapshot, row)
    if start.kind == end.kind == "timestamp":
        return start.value > end.value
    return start.kind == "offset"


def _position_of(spec: OffsetSpec, snapshot: QuerySnapshot, row: int) -> Position:
    if spec.default is not None:
        return spec.default
    return spec.partitions[snapshot.topics[row], int(snapshot.partitions[row])]


def _order_error(
    snapshot: QuerySnapshot, options: ReadOptions, row: int, starts: Int64Array, ends: Int64Array
) -> KafkaLogSparkError:
    topic, partition = snapshot.topics[row], int(snapshot.partitions[row])
    return KafkaLogSparkError(
        ErrorCode.OFFSET_INVALID,
        f"{topic}-{partition}: {options.starting.option} comes to {starts[row]}, which is above"
        f" {ends[row]}, the result of {options.ending.option}",
        topic=topic,
        partition=partition,
        start=int(starts[row]),
        end=int(ends[row]),
    )
