"""Start and end of a query, as users write them.

    earliest            latest              latest-100
    1700000000000       -10m                (of the options with `Timestamp` in their names)
    {"orders": {"0": 23, "1": -2}}          -2 is the earliest, -1 the latest

Thread-safety: everything here is immutable. The plan resolves a position to an offset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kafkalog.files.names import is_topic_name
from kafkalog.spark.errors import ErrorCode
from kafkalog.spark.options.option import invalid, parse_duration

__all__ = [
    "EARLIEST",
    "LATEST",
    "TOPIC_IDS",
    "OffsetSpec",
    "Position",
    "parse_assignment",
    "parse_offset_word",
    "parse_offsets",
    "parse_partition_timestamps",
    "parse_timestamp",
]

# A further entry in the offsets of a stream (`kafkalog.spark.stream_offsets`).
TOPIC_IDS: Final = "#topic_ids"

_INVALID: Final = ErrorCode.OFFSET_INVALID
_EARLIEST_OFFSET: Final = -2
_LATEST_OFFSET: Final = -1
_MAX: Final = 2**63 - 1
_MAX_PARTITION: Final = 2**31 - 1
_BEFORE_LATEST: Final = re.compile(r"latest\s*-\s*([0-9]{1,19})", re.ASCII)
_PARTITION: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)

Kind = Literal["earliest", "latest", "offset", "timestamp", "ago"]


@dataclass(frozen=True, slots=True)
class Position:
    """
    A position in a partition.

    Attributes:
        kind: `earliest`; `latest`, `value` offsets before it; the `offset` `value`; the first
            record at the `timestamp` `value` or later; or the same `value` ms ago.
        value: a number for that.
    """

    kind: Kind
    value: int = 0


EARLIEST: Final = Position("earliest")
LATEST: Final = Position("latest")


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """
    Start, or end, of all partitions.

    Attributes:
        option: the option that gave it, for messages.
        default: for every partition that is not listed; None if all have to be.
        partitions: single ones, by topic and number.
        when_missing: the handling of a time after the last record.
    """

    option: str
    default: Position | None
    partitions: Mapping[tuple[str, int], Position] = field(default_factory=dict)
    when_missing: Literal["error", "latest"] = "error"


def parse_offset_word(text: str) -> Position | None:
    """Return the position of `earliest`, `latest` or `latest-100`, None for anything else."""
    lowered = text.strip().lower()
    if lowered == "earliest":
        return EARLIEST
    if lowered == "latest":
        return LATEST
    match = _BEFORE_LATEST.fullmatch(lowered)
    if match is None or int(match[1]) > _MAX:
        return None
    return Position("latest", int(match[1]))


def parse_offsets(
    option: str, value: Mapping[str, Any], forbidden: Position | None
) -> dict[tuple[str, int], Position]:
    """
    Return the positions of single partitions.

    Args:
        option: for messages.
        value: the parsed JSON object.
        forbidden: EARLIEST or LATEST if it is not allowed here.

    Raises:
        KafkaLogSparkError: OFFSET_INVALID.
    """

    def position(number: Any) -> Position:
        if number == _EARLIEST_OFFSET:
            found = EARLIEST
        elif number == _LATEST_OFFSET:
            found = LATEST
        else:
            found = Position("offset", number)
        if found is forbidden:
            raise invalid(option, number, f"an offset; {found.kind} makes no sense here", _INVALID)
        return found

    return _by_partition(option, value, position, lowest=_EARLIEST_OFFSET)


def parse_partition_timestamps(
    option: str, value: Mapping[str, Any]
) -> dict[tuple[str, int], Position]:
    """Return the times of single partitions as positions."""
    return _by_partition(option, value, lambda number: Position("timestamp", number), lowest=0)


def _by_partition(
    option: str, value: Mapping[str, Any], position: Callable[[Any], Position], lowest: int
) -> dict[tuple[str, int], Position]:
    rule = '{"topic": {"0": 123, "1": 456}}'
    found = {}
    for topic, numbers in value.items():
        if topic == TOPIC_IDS:
            continue
        if not is_topic_name(topic) or not isinstance(numbers, dict):
            raise invalid(option, value, f"like {rule}", _INVALID)
        for name, number in numbers.items():
            if not _PARTITION.fullmatch(name) or int(name) > _MAX_PARTITION:
                raise invalid(
                    option, name, f"a partition number, in an object like {rule}", _INVALID
                )
            if type(number) is not int or not lowest <= number <= _MAX:
                raise invalid(
                    option,
                    number,
                    f"an integer from {lowest} to {_MAX} for {topic}-{name}",
                    _INVALID,
                )
            found[topic, int(name)] = position(number)
    if not found:
        raise invalid(option, value, f"like {rule}", _INVALID)
    return found


def parse_timestamp(option: str, text: str) -> Position:
    """Return the position of a time: ms since 1970, or `-10m`."""
    stripped = text.strip()
    if _NUMBER.fullmatch(stripped) and int(stripped) <= _MAX:
        return Position("timestamp", int(stripped))
    if stripped.startswith("-") and not stripped[1:].strip().isdigit():
        ago = parse_duration(stripped[1:].strip())
        if ago is not None and ago <= _MAX:
            return Position("ago", ago)
    raise invalid(option, text, "a time in ms since 1970, or -10m for ten minutes ago", _INVALID)


def parse_assignment(option: str, value: Mapping[str, Any]) -> tuple[tuple[str, int], ...]:
    """
    Return the partitions of `{"orders": [0, 1]}`.

    Raises:
        KafkaLogSparkError: OPTION_INVALID.
    """
    rule = 'like {"topic": [0, 1]}'
    found: dict[tuple[str, int], None] = {}
    for topic, numbers in value.items():
        if not is_topic_name(topic) or not isinstance(numbers, list) or not numbers:
            raise invalid(option, value, rule)
        for number in numbers:
            if type(number) is not int or not 0 <= number <= _MAX_PARTITION:
                raise invalid(option, number, f"a partition number, in an object {rule}")
            found[topic, number] = None
    if not found:
        raise invalid(option, value, rule)
    return tuple(found)
