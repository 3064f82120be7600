"""Description of one option: its name, the kind of its value, and the queries that have it.

Values are parsed like Spark's own: `256m` is bytes, `15m` a time, `true` a boolean, in any case and
with blanks around.

Thread-safety: everything here is immutable.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError

__all__ = [
    "IgnoredOption",
    "Kind",
    "Option",
    "Where",
    "invalid",
    "parse_duration",
    "parse_object",
]

Kind = Literal["boolean", "count", "bytes", "duration", "word", "text", "names", "json"]
Where = Literal["batch", "stream", "write"]

_LONG_MAX: Final = 2**63 - 1
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_BYTES: Final = re.compile(r"([0-9]{1,19})\s*([kmgtp]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_DURATION: Final = re.compile(r"([0-9]{1,19})\s*(us|ms|s|m|min|h|d)?", re.ASCII | re.IGNORECASE)
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_MICROSECONDS: Final = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_SHOWN_MAX: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """
    One option.

    Attributes:
        name: as users write it, in any case.
        kind: kind of its value.
        default: the text of the default; None for no default.
        otherwise: the default in words, if it depends on something.
        where: the kinds of queries that have it.
        group: heading in the documentation.
        kafka: relation to Spark's Kafka source; "" if that does not have the option.
        ignored_in: kinds of queries that ignore it with a warning, as Spark's Kafka source does.
        aliases: other names.
        lower, upper: inclusive bounds of a number.
        choices: the allowed words, in any case.
        doc: description.
    """

    name: str
    kind: Kind
    where: tuple[Where, ...]
    group: str
    doc: str
    default: str | None = None
    otherwise: str = ""
    kafka: str = ""
    ignored_in: Where | None = None
    aliases: tuple[str, ...] = ()
    lower: int | None = None
    upper: int | None = None
    choices: tuple[str, ...] = ()

    @property
    def rule(self) -> str:
        """The requirement on a value, as the end of the sentence "must be ..."."""
        upper = _LONG_MAX if self.upper is None else self.upper
        match self.kind:
            case "boolean":
                return "true or false"
            case "word":
                return "one of " + ", ".join(self.choices)
            case "count":
                return f"an integer from {self.lower} to {upper}"
            case "bytes":
                return f"a size from {self.lower} to {upper} bytes, as 64k, 256m or 1g"
            case "duration":
                return "a time, as 100ms, 30s, 15m or 24h"
            case "names":
                return "a list of names, parted by commas or in JSON"
            case "json":
                return "a JSON object"
            case "text":
                return "a text that is not empty"

    def parse(self, text: str) -> Any:
        """
        Return the value of a text.

        Raises:
            KafkaLogSparkError: OPTION_INVALID, with the requirement.
        """
        stripped = text.strip()
        value: Any = None
        match self.kind:
            case "boolean":
                value = {"true": True, "false": False}.get(stripped.lower())
            case "word":
                words = {choice.lower(): choice for choice in self.choices}
                value = words.get(stripped.lower())
            case "count":
                value = self._bounded(int(stripped) if _NUMBER.fullmatch(stripped) else None)
            case "bytes":
                value = self._bounded(_parse_bytes(stripped))
            case "duration":
                value = self._bounded(parse_duration(stripped))
            case "names":
                value = _parse_names(stripped)
            case "json":
                value = parse_object(stripped)
            case "text":
                value = stripped or None
        if value is None:
            raise invalid(self.name, text, self.rule)
        return value

    def _bounded(self, number: int | None) -> int | None:
        if number is None or not -(2**63) <= number <= _LONG_MAX:
            return None
        if self.lower is not None and number < self.lower:
            return None
        return None if self.upper is not None and number > self.upper else number


@dataclass(frozen=True, slots=True)
class IgnoredOption:
    """
    An option without effect here that is accepted.

    Attributes:
        name: as users write it; ends in `*` for a prefix.
        where: the kinds of queries.
        reason: why it has no effect.
        is_prefix: True for all options that begin with the name.
        is_reported: True to warn of it.
    """

    name: str
    where: tuple[Where, ...]
    reason: str
    is_prefix: bool = False
    is_reported: bool = True

    def covers(self, key: str) -> bool:
        """Return True if it covers an option, given in lower case."""
        name = self.name.lower()
        return key.startswith(name[:-1]) if self.is_prefix else key == name


def invalid(
    name: str, text: object, rule: str, code: ErrorCode = ErrorCode.OPTION_INVALID
) -> KafkaLogSparkError:
    """Return the error for an invalid value of an option."""
    shown = str(text)
    if len(shown) > _SHOWN_MAX:
        shown = shown[: _SHOWN_MAX - 3] + "..."
    return KafkaLogSparkError(code, f"{name} = {shown!r}: must be {rule}", option=name, value=shown)


def parse_duration(text: str) -> int | None:
    """Return the milliseconds of a duration in Spark's notation, None if invalid."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return None
    unit = (match[2] or "ms").lower()
    return int(match[1]) * _MICROSECONDS[unit] // 1000


def _parse_bytes(text: str) -> int | None:
    match = _BYTES.fullmatch(text)
    return None if match is None else int(match[1]) << _SHIFTS[match[2].lower()]


def _parse_names(text: str) -> tuple[str, ...] | None:
    """Return the names of a list without repetitions, None if invalid."""
    if text.startswith("["):
        try:
            listed = json.loads(text)
        except ValueError:
            return None
        if not all(isinstance(each, str) for each in listed):
            return None
    else:
        listed = text.split(",")
    names = [each.strip() for each in listed]
    if not names or not all(names):
        return None
    return tuple(dict.fromkeys(names))


def parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a text, None if invalid."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
