"""`kafkalog plan` and `kafkalog explain`: selection of logs, settings, output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kafkalog import LogConfig, LogManager, ManagerConfig, Record, open_log
from kafkalog.cli.app import app
from tests.support.damage import flip
from tests.support.golden import data_directory, unchanged

DATA = data_directory("kafka-4.1")
COMPACT = ("--set", "cleanup.policy=compact")
# Enough for the few keys here, and quicker cleared than the default.
LITTLE = ("--memory", "65536")


def run(*arguments: str | Path | int) -> Result:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def parsed(result: Result) -> Any:
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def fill(log: Any) -> None:
    """Append ten records of two keys, and one in another segment."""
    for number in range(10):
        log.append([Record(key=b"k%d" % (number % 2), value=b"v", timestamp_ms=1000 + number)])
    log.roll()
    log.append([Record(key=b"k0", value=b"v", timestamp_ms=2000)])


@pytest.fixture(name="alone")
def fixture_alone(tmp_path: Path) -> Path:
    """A standalone partition directory."""
    with open_log(tmp_path / "orders-0", config=LogConfig(cleanup_policy=("compact",))) as log:
        fill(log)
    return tmp_path / "orders-0"


@pytest.fixture(name="data")
def fixture_data(tmp_path: Path) -> Iterator[Path]:
    """A data directory of a manager, with a compacted topic and another."""
    directory = tmp_path / "data"
    with LogManager([directory], ManagerConfig()) as manager:
        manager.create_topic("table", 2, {"cleanup.policy": "compact"})
        manager.create_topic("stream", 1)
        fill(manager.log("table", 0))
        fill(manager.log("stream", 0))
    yield directory


def test_plan_log_shows_removed_records_with_reasons(alone: Path) -> None:
    """Lines, and a table of the segments; the log is only read."""
    with unchanged(alone):
        result = run("plan", alone, *COMPACT, *LITTLE)
    assert 0 == result.exit_code, result.output
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert lines[0].startswith("orders-0, offsets 0..11, at 20")
    assert "  from    0: it was never cleaned" == lines[1]
    assert "  to      10: the active segment is never cleaned" == lines[2]
    assert "  due     yes: dirty ratio 1.000 is above 0.5" == lines[3]
    assert "  goes    8 of 10 records: 8 superseded" == lines[4]
    assert "  bytes   710 become 142 (80.0 % less), in 1 segments instead of 1" == lines[5]
    assert "  keys    2 in the dirty part; 72 of 65,536 bytes for the map" == lines[6]
    assert ["segment", "state", "group", "bytes", "after", "less", "records", "after"] == (
        lines[8].split()
    )
    assert "  0        dirty       0    710    142  80.0 %       10      2" == lines[9]
    assert "  10       active      -     71     71   0.0 %        -      -" == lines[10]


def test_plan_json_is_one_object(alone: Path) -> None:
    """It has all values of a plan."""
    (log,) = parsed(run("plan", alone, *COMPACT, *LITTLE, "--json", "--include-active"))["logs"]
    assert "orders-0" == log["topic_partition"]
    assert (11, 2) == (log["statistics"]["records_read"], log["statistics"]["records_kept"])


def test_plan_data_directory_uses_its_topic_settings(data: Path) -> None:
    """All compacted logs, by the settings that a manager has stored."""
    found = parsed(run("plan", data, *LITTLE, "--json"))["logs"]
    # Nothing was written to the other partition.
    assert ["table-0"] == [log["topic_partition"] for log in found]
    (one,) = parsed(run("plan", data, *LITTLE, "--json", "--partition", "table-0"))["logs"]
    assert "table-0" == one["topic_partition"]
    # A partition directory within it knows as much.
    assert 0 == run("plan", data / "table-0", *LITTLE).exit_code


def test_plan_properties_file_sets_the_defaults(alone: Path, tmp_path: Path) -> None:
    """`log.cleanup.policy`, and the settings of the cleaner."""
    file = tmp_path / "server.properties"
    file.write_text("log.cleanup.policy=compact\nlog.cleaner.dedupe.buffer.size=2097152\n")
    (log,) = parsed(run("plan", alone, "--properties", file, "--json"))["logs"]
    assert 2_097_152 == log["memory_bytes"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("plan", "{alone}"), "orders-0 has cleanup.policy=delete by the settings given here"),
        (("plan", "{data}", "--partition", "stream-0"), "stream-0 has cleanup.policy=delete"),
        (("plan", "{data}", "--partition", "table-9"), "has no partition table-9"),
        (("plan", "{data}", *COMPACT), "name the partitions of"),
        (("plan", "{alone}", "--partition", "x-0"), "not a data directory"),
        (("plan", "{alone}", "--set", "cleanup.policy"), "must be KEY=VALUE"),
        (("plan", "{alone}", "--set", "cleanup.unknown=compact"), "cleanup.unknown"),
        (("plan", "{alone}/absent"), "absent"),
        (("explain", "{alone}", "11", *COMPACT), "got 11"),
        (("explain", "{data}", "0"), "holds 2 partitions: name one of them"),
        (("explain", "{data}", "0", "--partition", "stream-0"), "cleanup.policy=delete"),
    ],
)
def test_plan_failure_reports_the_reason(
    alone: Path, data: Path, arguments: tuple[str, ...], said: str
) -> None:
    """With status 2 or 3, and nothing on standard output."""
    result = run(*(each.format(alone=alone, data=data) for each in arguments))
    assert (3 if said in ("absent", "got 11") else 2) == result.exit_code
    assert "" == result.stdout
    assert said in result.stderr


def test_plan_directory_without_compacted_logs_is_reported(tmp_path: Path) -> None:
    """As a broker's directory, whose topic settings are elsewhere."""
    with unchanged(DATA):
        result = run("plan", DATA)
    assert 2 == result.exit_code
    assert "has compact in its cleanup.policy by the settings given here" in result.stderr


def test_plan_log_cleaned_by_a_broker_is_clean() -> None:
    """The broker's checkpoint has the clean end; nothing below it is superseded."""
    with unchanged(DATA):
        found = run("plan", DATA, *COMPACT, "--partition", "compact-none-0", "--json", *LITTLE)
    (log,) = parsed(found)["logs"]
    assert ("checkpoint", 1961) == (log["begins"]["kind"], log["begins"]["offset"])
    assert (0, 0) == (log["statistics"]["superseded"], log["keys"])
    assert not log["is_due"]


def test_explain_record_prints_one_sentence(alone: Path) -> None:
    """Or one JSON object."""
    with unchanged(alone):
        result = run("explain", alone, 1, *COMPACT, *LITTLE)
    expected = "The record at offset 1 with key b'k1' goes: offset 9 has the same key.\n"
    assert (0, expected) == (result.exit_code, result.stdout)
    shown = parsed(run("explain", alone, 1, *COMPACT, *LITTLE, "--json"))
    assert ("superseded", 9, b"k1".hex()) == (shown["rule"], shown["later_offset"], shown["key"])
    active = parsed(run("explain", alone, 8, *COMPACT, *LITTLE, "--json", "--include-active"))
    assert 10 == active["later_offset"]


@pytest.mark.parametrize("verb", [("plan",), ("explain", "3")])
def test_plan_damaged_log_reports_the_position(alone: Path, verb: tuple[str, ...]) -> None:
    """A cleaning would end there, too."""
    log = alone / f"{0:020}.log"
    flip(log, 70)
    name, *rest = verb
    result = run(name, alone, *rest, *COMPACT, *LITTLE)
    assert 3 == result.exit_code
    assert str(log) in result.stderr
