"""Data of the demo: every row becomes one record."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from datetime import datetime, timedelta
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from kafkalog.cli.demo import flights as flights_module
from kafkalog.cli.demo.flights import (
    FLIGHT_COUNT,
    MissingDataError,
    by_departure,
    find_flights,
    flights,
)

# Every 97th row: all of a year, through both changes of the clock, in a tenth of a second.
STEP = 97


def rows() -> list[dict[str, str]]:
    with zipfile.ZipFile(find_flights()) as files, files.open("flights.csv") as raw:
        return list(csv.DictReader(io.TextIOWrapper(raw, "ascii")))


def test_flights_equal_the_rows_of_the_file() -> None:
    """Key, value and timestamp of each record, compared with csv, json and the zone's own rules."""
    zone = ZoneInfo("America/New_York")
    records = list(flights(find_flights()))
    expected = rows()

    assert FLIGHT_COUNT == len(records) == len(expected)
    for row, record in zip(expected[::STEP], records[::STEP], strict=True):
        tail_number = None if row["tailnum"] == "NA" else row["tailnum"].encode()
        assert tail_number == record.key
        value = json.loads(record.value or b"")
        assert {name: None if cell == "NA" else cell for name, cell in row.items()} == {
            name: None if cell is None else str(cell) for name, cell in value.items()
        }
        assert isinstance(value["distance"], int)
        scheduled = int(row["sched_dep_time"])
        departure = datetime(
            int(row["year"]), int(row["month"]), int(row["day"]), tzinfo=zone
        ) + timedelta(hours=scheduled // 100, minutes=scheduled % 100)
        assert int(departure.timestamp() * 1000) == record.timestamp_ms


def test_by_departure_all_flights_are_in_order_of_time() -> None:
    """The file is not sorted by month; the log of events is in the order of time."""
    records = list(flights(find_flights(), 60_000))
    timestamps = [record.timestamp_ms for record in records]

    assert sorted(timestamps) != timestamps
    assert sorted(timestamps) == [record.timestamp_ms for record in by_departure(records)]


def test_flights_limit_ends_the_stream() -> None:
    """Only the first rows are read."""
    assert 7 == len(list(flights(find_flights(), 7)))


def test_flights_missing_package_raises_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the extra to install."""

    def missing(_: str) -> None:
        raise PackageNotFoundError

    monkeypatch.setattr(flights_module, "distribution", missing)

    with pytest.raises(MissingDataError, match=r"kafkalog\[demo\]"):
        find_flights()


def test_flights_other_columns_are_refused(tmp_path: Path) -> None:
    """The error names a file with other columns."""
    archive = tmp_path / "flights.csv.zip"
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("flights.csv", "a,b\n1,2\n")

    with pytest.raises(MissingDataError, match="unexpected columns"):
        list(flights(archive))
