"""`kafkalog compact`: selection of logs, output, and unchanged logs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kafkalog import LogConfig, LogManager, ManagerConfig, Record, open_log
from kafkalog.cli.app import app
from kafkalog.cli.compact import compact_logs as compact_logs_module
from kafkalog.log.cleaner_access import cleaner_access
from tests.support.damage import flip
from tests.support.golden import unchanged, vectors
from tests.support.manual_time import ManualClock

COMPACT = ("--set", "cleanup.policy=compact")


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["compact", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def cleanings(*arguments: str | Path) -> Any:
    result = run(*arguments, "--memory", "65536", "--json")
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)["cleanings"]


def fill(log: Any, keys: int = 2) -> None:
    """Append ten records of each key, and one in another segment."""
    for number in range(10 * keys):
        log.append([Record(key=b"k%d" % (number % keys), value=b"v", timestamp_ms=1000 + number)])
    log.roll()
    log.append([Record(key=b"k0", value=b"v", timestamp_ms=2000)])


def offsets(path: Path) -> list[int]:
    """Return the offsets of the records of a log."""
    with open_log(path, read_only=True) as log:
        return [record.offset for record in log.records()]


@pytest.fixture(name="alone")
def fixture_alone(tmp_path: Path) -> Path:
    """A standalone partition directory."""
    with open_log(tmp_path / "orders-0", config=LogConfig(cleanup_policy=("compact",))) as log:
        fill(log)
    return tmp_path / "orders-0"


def test_compact_log_keeps_the_latest_record_of_each_key(alone: Path) -> None:
    """The output is a broker's summary of a cleaning; a second run finds nothing to clean."""
    result = run(alone, *COMPACT)
    assert 0 == result.exit_code, result.output
    assert "cleaned orders-0, dirty offsets 0 to 20" in result.stdout
    assert [18, 19, 20] == offsets(alone)
    again = run(alone, *COMPACT)
    assert "orders-0: nothing after offset 20 may be cleaned; kafkalog plan" in again.stdout


@pytest.mark.parametrize(
    ("key_hash", "kept"), [(None, 3), ("siphash", 3), ("exact", 3), ("md5", 2)]
)
def test_compact_hash_option_selects_the_comparison_of_keys(
    tmp_path: Path, key_hash: str | None, kept: int
) -> None:
    """HOST-16: a hash with a secret is the default; md5 is a broker's algorithm."""
    found = vectors("md5_collision")
    with open_log(tmp_path / "orders-0", config=LogConfig(cleanup_policy=("compact",))) as log:
        for key in (bytes.fromhex(found["first"]), bytes.fromhex(found["second"])):
            log.append([Record(key=key, value=b"v", timestamp_ms=1000)])
        log.roll()
        log.append([Record(key=b"k0", value=b"v", timestamp_ms=2000)])
    option = () if key_hash is None else ("--hash", key_hash)
    result = run(tmp_path / "orders-0", *COMPACT, *option)
    assert 0 == result.exit_code, result.output
    assert kept == len(offsets(tmp_path / "orders-0"))


def test_compact_unknown_hash_is_refused(alone: Path) -> None:
    """HOST-16: the error names the setting and its choices."""
    result = run(alone, *COMPACT, "--hash", "crc")
    assert 0 != result.exit_code
    assert "siphash" in result.output


def test_compact_include_active_cleans_the_active_segment(alone: Path) -> None:
    """The active segment is rolled first."""
    (found,) = cleanings(alone, *COMPACT, "--include-active")
    assert ("orders-0", str(alone)) == (found["topic_partition"], found["path"])
    assert (0, 21, True) == (found["first_dirty"], found["end_offset"], found["complete"])
    assert 19 == found["statistics"]["superseded"]
    assert [19, 20] == offsets(alone)


def test_compact_throttle_limits_bytes_per_second(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleaning waits for the bytes that it has read and written; `--throttle` is the rate."""
    waits: list[float] = []
    clock = ManualClock()

    def sleep(duration_s: float) -> None:
        waits.append(duration_s * 1000)
        clock.advance(int(waits[-1]) + 1)

    monkeypatch.setattr(compact_logs_module, "SystemClock", lambda: clock)
    monkeypatch.setattr(time, "sleep", sleep)
    (found,) = cleanings(alone, *COMPACT, "--throttle", "1000")
    size = found["map_bytes"] + found["statistics"]["bytes_read"]
    size += found["statistics"]["bytes_written"]
    # A byte is a millisecond.
    assert size == pytest.approx(sum(waits), rel=0.05)


def test_compact_little_memory_cleans_all_in_several_cleanings(tmp_path: Path) -> None:
    """Each cleaning covers the keys that fit."""
    path = tmp_path / "orders-0"
    with open_log(path, config=LogConfig(cleanup_policy=("compact",))) as log:
        for _ in range(4):
            log.append([Record(key=b"%d" % n, value=b"v", timestamp_ms=1) for n in range(30)])
            log.roll()
        log.append([Record(key=b"%d" % n, value=b"v", timestamp_ms=1) for n in range(30, 60)])
    result = run(path, *COMPACT, "--include-active", "--memory", "1200", "--json")
    found = json.loads(result.stdout)["cleanings"]
    assert 2 == len(found)
    assert [False, True] == [each["complete"] for each in found]
    assert list(range(90, 150)) == offsets(path)


def test_compact_data_directory_cleans_its_compacted_logs(tmp_path: Path) -> None:
    """The other logs stay unchanged."""
    with LogManager([tmp_path], ManagerConfig()) as manager:
        manager.create_topic("table", 2, {"cleanup.policy": "compact"})
        manager.create_topic("stream", 1)
        for topic, partition in (("table", 0), ("table", 1), ("stream", 0)):
            fill(manager.log(topic, partition))
    with unchanged(tmp_path / "stream-0"):
        found = cleanings(tmp_path)
    assert ["table-0", "table-1"] == [each["topic_partition"] for each in found]
    assert [18, 19, 20] == offsets(tmp_path / "table-0") == offsets(tmp_path / "table-1")
    # A manager continues from there.
    with LogManager([tmp_path], ManagerConfig()) as manager:
        assert 20 == cleaner_access(manager.log("table", 0)).cleaner_offset


def test_compact_without_policy_is_refused_and_changes_nothing(alone: Path) -> None:
    """The policy of the log is not known to be compact."""
    with unchanged(alone):
        result = run(alone)
    assert 2 == result.exit_code
    assert "has cleanup.policy=delete by the settings given here" in result.stderr


def test_compact_log_in_use_is_refused(alone: Path) -> None:
    """Another writer has the log open."""
    with open_log(alone):
        result = run(alone, *COMPACT)
    assert 3 == result.exit_code
    assert "orders-0" in result.stderr


def test_compact_damaged_log_reports_the_finished_logs(tmp_path: Path) -> None:
    """The second log is damaged; the first is clean."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    for name in ("a-0", "b-0"):
        with open_log(tmp_path / name) as log:
            fill(log)
    flip(tmp_path / "b-0" / f"{0:020}.log", 70)
    named = ("--partition", "a-0", "--partition", "b-0")
    result = run(tmp_path, *named, *COMPACT, "--memory", "65536")
    assert 3 == result.exit_code
    assert "cleaned a-0, dirty offsets 0 to 20" in result.stdout
    assert "b-0" in result.stderr
    assert [18, 19, 20] == offsets(tmp_path / "a-0")
