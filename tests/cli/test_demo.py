"""`kafkalog demo` on a few thousand flights: every act runs, and every check in it can fail."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import kafkalog
from kafkalog.cli.app import app
from kafkalog.cli.demo import command
from kafkalog.cli.demo.crash import crash_and_recover
from kafkalog.cli.demo.flight_log import append_flights, check_look_ups, open_flight_log, read_back
from kafkalog.cli.demo.flights import MissingDataError, find_flights, flights
from kafkalog.cli.demo.writer import expected_record
from tests.support.golden import CLEAN, GOLDEN, unchanged

GOLDEN_SET = GOLDEN / CLEAN


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["demo", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def small_golden(target: Path) -> Path:
    """Copy one partition of the golden set with its manifest."""
    name = "plain-small-0"
    shutil.copytree(GOLDEN_SET / "data" / name, target / "data" / name)
    (target / "manifests").mkdir()
    manifest = f"{name}.summary.json"
    shutil.copyfile(GOLDEN_SET / "manifests" / manifest, target / "manifests" / manifest)
    return target


def nothing(_: int) -> None:
    """Ignore the progress."""


def test_demo_some_flights_pass_every_check() -> None:
    """All four acts, over all golden partitions, which stay unchanged."""
    with unchanged(GOLDEN_SET / "data" / "plain-small-0"):
        result = run("--limit", "5000")

    assert 0 == result.exit_code, result.output
    text = " ".join(result.output.replace("\u2502", " ").split())
    assert "Every promise kept" in text
    assert "5,000 flights appended" in text
    assert "5,000 records read back" in text
    assert "0 are lost and 0 are wrong" in text
    assert "all equal what Kafka's own classes read" in text
    assert "N14228" in text or "2013-01-" in text


def test_demo_directory_has_logs_that_dump_reads(tmp_path: Path) -> None:
    """The demo writes a normal log; a second demo does not append to it."""
    golden = small_golden(tmp_path / "golden")
    work = tmp_path / "work"

    assert 0 == run("--limit", "300", "--directory", work, "--golden", golden).exit_code

    with kafkalog.open_log(work / "flights-0", read_only=True) as log:
        assert 300 == sum(1 for _ in log.records())
    dumped = CliRunner().invoke(app, ["dump", "--no-others", str(work / "flights-0")])
    assert 0 == dumped.exit_code
    again = run("--limit", "300", "--directory", work, "--golden", golden)
    assert 3 == again.exit_code
    assert "earlier demo" in again.output


def test_demo_without_broker_data_reports_the_skipped_act(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package has no golden data."""
    monkeypatch.setattr(command, "find_golden", lambda: None)

    result = run("--limit", "300")

    assert 0 == result.exit_code, result.output
    assert "Left out" in result.output


def test_demo_different_manifest_fails(tmp_path: Path) -> None:
    """The comparison with Kafka's reading can fail, and then the demo fails."""
    golden = small_golden(tmp_path / "golden")
    path = golden / "manifests" / "plain-small-0.summary.json"
    summary = json.loads(path.read_text())
    summary["dataRecordsFromLogStart"]["sha256"] = "0" * 64
    path.write_text(json.dumps(summary))

    result = run("--limit", "300", "--golden", golden)

    assert 1 == result.exit_code
    assert "A PROMISE WAS BROKEN" in result.output


def test_demo_without_flights_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence and exit status 2, no traceback."""

    def missing() -> Path:
        raise MissingDataError("pip install 'kafkalog[demo]'")

    monkeypatch.setattr(command, "find_flights", missing)

    result = run()

    assert 3 == result.exit_code
    assert "kafkalog[demo]" in result.output


def test_flight_log_changed_bytes_fail_the_checks(tmp_path: Path) -> None:
    """One changed checksum, one changed timestamp: the demo counts both."""
    with open_flight_log(tmp_path / "flights-0") as log:
        appended = append_flights(log, flights(find_flights(), 1000), nothing)
        assert 0 == read_back(log, appended, nothing).wrong
        assert [0, 0] == [found.wrong for found in check_look_ups(log, appended, 50)]

        appended.checksums[500] ^= np.uint32(1)
        assert 1 == read_back(log, appended, nothing).wrong
        appended.timestamps[:] += 60_000
        assert 1000 == read_back(log, appended, nothing).wrong
        assert check_look_ups(log, appended, 50)[1].wrong > 0


def test_crash_act_keeps_every_acknowledged_record(tmp_path: Path) -> None:
    """SIGKILL ends the writer, exactly the torn bytes are truncated, and appends continue."""
    seen: list[int] = []

    outcome = crash_and_recover(tmp_path / "events-0", 10, seen.append)

    assert signal.SIGKILL == outcome.exit_signal
    assert 10 <= outcome.acknowledged == seen[-1]
    assert outcome.acknowledged * 50 == outcome.acknowledged_offset <= outcome.recovered_offset
    assert (0, 0) == (outcome.lost, outcome.wrong)
    assert outcome.torn_bytes > 0
    assert outcome.is_good
    with kafkalog.open_log(tmp_path / "events-0") as log:
        info = log.append([expected_record(log.log_end_offset)], wait="durable")
        assert outcome.recovered_offset == info.first_offset


def test_module_run_equals_the_command() -> None:
    """`python -m kafkalog` is the same as `kafkalog`."""
    answer = subprocess.run(
        [sys.executable, "-m", "kafkalog", "--help"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "dump" in answer.stdout
    assert "demo" in answer.stdout
