"""`kafkalog recover`: what a broker must not start on before, output, refused arguments."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kafkalog import LogManager, ManagerConfig, examine_directories
from kafkalog.cli.app import app
from tests.support.managers import append_texts, manual_manager, values

CONFIG = ManagerConfig(journal_enable=True, journal_bytes=1 << 18)


def run(*arguments: str | Path) -> Result:
    """Run the command."""
    result = CliRunner().invoke(app, ["recover", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


def checks_of(directory: Path) -> list[str]:
    """Return what the doctor finds about a journal."""
    found = examine_directories([directory]).findings
    return [each.check for each in found if each.check.startswith("journal")]


@pytest.fixture(name="lost")
def fixture_lost(tmp_path: Path) -> Path:
    """A copy of a data directory whose logs have lost what the journal alone has."""
    manager = manual_manager(tmp_path / "data", config=CONFIG)
    manager.create_topic("orders", 2)
    for partition in range(2):
        append_texts(manager, "orders", partition, "kept")
    manager.flush()
    paths = [tmp_path / "data" / f"orders-{each}" / f"{0:020}.log" for each in range(2)]
    sizes = [path.stat().st_size for path in paths]
    for partition in range(2):
        append_texts(manager, "orders", partition, "journal")
    manager.flush()
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "data", copy)
    manager.close()
    for path, size in zip(paths, sizes, strict=True):
        with (copy / path.relative_to(tmp_path / "data")).open("r+b") as file:
            file.truncate(size)
    return copy


def test_recover_applies_the_journal_and_closes_in_order(lost: Path) -> None:
    """One command before a broker starts: the doctor has nothing to report then."""
    assert ["journal.unapplied"] == checks_of(lost)
    result = run(lost)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:2]] == ["orders-0", "orders-1"]
    assert lines[2] == "2 partitions recovered, 0 faults"
    assert not list(lost.glob(".kafkalog_journal*"))
    assert (lost / ".kafka_cleanshutdown").exists()
    assert not checks_of(lost)
    with LogManager([lost]) as manager:
        assert [["kept", "journal"]] * 2 == [values(manager, "orders", each) for each in range(2)]
    result = run(lost)
    assert (0, "0 partitions recovered, 0 faults\n") == (result.exit_code, result.stdout)


def test_recover_json_has_an_object_a_line(lost: Path) -> None:
    """With the end of each recovered log."""
    result = run(lost, "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [("orders-0", 2), ("orders-1", 2)] == [
        (each["partition"], each["log_end_offset"]) for each in found
    ]


def test_recover_reports_a_journal_that_another_program_made_stale(lost: Path) -> None:
    """The marker is that of a broker: the exit status is 1, and the journal stays for a look."""
    (lost / ".kafka_cleanshutdown").touch()
    result = run(lost)
    assert result.exit_code == 1
    assert "another program has closed the directory" in result.stdout
    assert ["journal.refused"] == checks_of(lost)


def test_recover_refuses_other_paths(tmp_path: Path, lost: Path) -> None:
    """A partition, nothing at all, and a directory that is in use."""
    for path in (tmp_path / "none", lost / "orders-0"):
        result = run(path)
        assert result.exit_code == 3
        assert "is not a data directory" in result.stderr
    with LogManager([lost]):
        assert run(lost).exit_code == 3
