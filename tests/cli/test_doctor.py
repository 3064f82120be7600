"""`kafkalog doctor`: exit status and two forms of output of the checks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kafkalog.cli.app import app
from kafkalog.doctor import examine
from tests.support.doctor_fixtures import healthy_directory, made_unclean
from tests.support.machines import MadeUpMachine


@pytest.fixture(name="data")
def fixture_data(tmp_path: Path) -> Path:
    """A data directory at which nothing is wrong."""
    return healthy_directory(tmp_path / "data")


@pytest.fixture(autouse=True)
def fixture_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on a machine at which nothing is wrong."""
    monkeypatch.setattr(examine, "LocalMachine", MadeUpMachine)


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["doctor", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def test_doctor_healthy_directory_has_one_line_and_status_0(data: Path) -> None:
    """The line counts the checked files."""
    result = run(data)
    assert 0 == result.exit_code
    expected = "1 partitions, 2 segments, 1,200 bytes: 0 errors, 0 warnings, 0 notes\n"
    assert expected == result.stdout


def test_doctor_warning_shows_finding_reason_and_fix(data: Path) -> None:
    """A warning makes the status 1."""
    made_unclean(data)
    result = run(data)
    assert 1 == result.exit_code
    lines = result.stdout.splitlines()
    assert "WARNING shutdown.unclean" == lines[0]
    assert lines[1].startswith(f"  seen     {data} has no .kafka_cleanshutdown: 1 logs (orders-0)")
    assert lines[2].startswith("  matters  the next opening reads 240 bytes again")
    assert "  change   nothing: open and close it cleanly" == lines[3]
    assert lines[4].endswith("0 errors, 1 warnings, 0 notes")


def test_doctor_notes_only_has_status_0(data: Path) -> None:
    """Nothing has to be changed, so no line has a fix."""
    (data / "orders-0" / "README [bold]").write_bytes(b"")
    result = run(data)
    assert 0 == result.exit_code
    assert "orders-0/README [bold]" in result.stdout
    assert "change " not in result.stdout


def test_doctor_skipped_check_is_reported(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In text and JSON."""
    machine = MadeUpMachine(settings={"swappiness": None})
    monkeypatch.setattr(examine, "LocalMachine", lambda: machine)
    assert "not looked at: vm.swappiness\n" in run(data).stdout
    assert ["vm.swappiness"] == json.loads(run(data, "--json").stdout)["unseen"]


def test_doctor_json_is_one_object_with_all_findings(data: Path) -> None:
    """The status is the same."""
    made_unclean(data)
    result = run(data, "--json")
    assert 1 == result.exit_code
    found = json.loads(result.stdout)
    finding = found["findings"].pop()
    assert {
        "directories": [str(data)],
        "partitions": 1,
        "segments": 2,
        "log_bytes": 1200,
        "findings": [],
        "unseen": [],
    } == found
    assert ("warning", "shutdown.unclean") == (finding["severity"], finding["check"])
    assert [str(data / "orders-0")] == finding["paths"]
    assert {"seen", "matters", "remedy"} < set(finding)


def test_doctor_several_directories_are_checked_together(data: Path, tmp_path: Path) -> None:
    """As the directories of one manager."""
    other = healthy_directory(tmp_path / "other", "orders-0", node_id=2)
    result = run(data, other)
    assert 1 == result.exit_code
    assert "ERROR partitions.twice" in result.stdout
    assert "ERROR meta.properties.agreement" in result.stdout


def test_doctor_directory_without_logs_has_status_3(tmp_path: Path) -> None:
    """The error names the directory."""
    (tmp_path / "letter.txt").write_text("dear")
    result = run(tmp_path)
    assert 3 == result.exit_code
    assert "neither a data directory nor a log" in result.stderr
