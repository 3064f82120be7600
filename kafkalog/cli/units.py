"""Sizes, times and durations of the command line, as text and from text.

Thread-safety: pure functions.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from kafkalog.errors import ConfigError

__all__ = ["parse_size", "parse_time", "size_text", "time_text"]

_UNITS: Final = ("", "K", "M", "G", "T", "P", "E")
_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([KMGTPE]?)(i?B)?", re.I)
_DURATION: Final = re.compile(r"(?:\d{1,18}(?:\.\d{1,18})?(?:ms|[wdhms]))+")
_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|[wdhms])")
_MS: Final = {"w": 604_800_000, "d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Largest time of a calendar; Kafka allows any number of 64 bits.
_CALENDAR_END_MS: Final = 253_402_300_800_000
_MAX_MS: Final = 2**63 - 1


def size_text(size_bytes: int) -> str:
    """
    Return a size in three digits and a binary unit.

    >>> size_text(1023), size_text(1536), size_text(250 * 2**20)
    ('1023', '1.5K', '250M')
    """
    size = float(size_bytes)
    unit = 0
    while size >= 999.5 and unit + 1 < len(_UNITS):
        if unit == 0 and size < 1024:
            break
        size /= 1024
        unit += 1
    if unit == 0:
        return str(size_bytes)
    return f"{size:.1f}{_UNITS[unit]}" if size < 9.95 else f"{size:.0f}{_UNITS[unit]}"


def parse_size(text: str) -> int:
    """Return the bytes of `10`, `64K`, `1.5GiB`; units are powers of 1024. ConfigError else."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"a size must be a number with K, M, G or T, as 64M, got {text!r}")
    return int(float(found[1]) * 1024 ** _UNITS.index(found[2].upper()))


def time_text(timestamp_ms: int | None, *, has_seconds: bool = False) -> str:
    """Return a time in UTC, or the number of a time that no calendar has; "-" for None."""
    if timestamp_ms is None or timestamp_ms < 0:
        return "-"
    if timestamp_ms >= _CALENDAR_END_MS:
        return str(timestamp_ms)
    # Whole seconds: a float with the milliseconds would be rounded.
    text = datetime.fromtimestamp(timestamp_ms // 1000, UTC).isoformat()
    if has_seconds:
        return f"{text[:19]}.{timestamp_ms % 1000:03d}Z"
    return f"{text[:10]} {text[11:16]}"


def parse_time(text: str, *, now_ms: int) -> int:
    """
    Return a time in ms since 1970.

    >>> parse_time("2026-11-28T12:00Z", now_ms=0)
    1795867200000

    Args:
        text: an ISO time, in UTC if it has no time zone; a duration before now, as `2h` or `1d12h`;
            ms since 1970 as a number; or `now`.
        now_ms: the present time.

    Raises:
        ConfigError: the text is neither.
    """
    stripped = text.strip()
    if stripped == "now":
        return now_ms
    if _DURATION.fullmatch(stripped):
        parts = _DURATION_PART.findall(stripped)
        return max(now_ms - int(sum(float(number) * _MS[unit] for number, unit in parts)), 0)
    if stripped.isascii() and stripped.isdigit() and len(stripped) > 8:
        if int(stripped) > _MAX_MS:
            raise ConfigError(f"a time must be at most {_MAX_MS} ms, got {stripped[:40]}")
        return int(stripped)
    try:
        time = datetime.fromisoformat(stripped)
    except ValueError:
        raise ConfigError(
            "a time must be an ISO time as 2026-11-28T12:00, a duration as 2h, or ms since 1970,"
            f" got {text[:60]!r}"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    timestamp_ms = (time - _EPOCH) // timedelta(milliseconds=1)
    if timestamp_ms < 0:
        raise ConfigError(f"a time must not be before 1970, got {text[:60]!r}")
    return timestamp_ms
