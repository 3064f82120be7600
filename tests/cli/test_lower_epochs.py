"""`kafkalog lower-epochs`: partitions and data directories, output, refused arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kafkalog import open_log
from kafkalog.cli.app import app
from tests.support.logs import manual_log, numbered
from tests.support.managers import append_texts, manual_manager


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["lower-epochs", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


@pytest.fixture(name="alone")
def fixture_alone(tmp_path: Path) -> Path:
    """A standalone partition directory with epoch 2 in its last batch."""
    with manual_log(tmp_path / "orders-0") as log:
        for _ in range(2):
            log.append(numbered(0, 2))
            log.truncate_to(0)
        log.append(numbered(0, 2))
    return tmp_path / "orders-0"


def test_lower_epochs_partition_reports_the_changes(alone: Path) -> None:
    """INT-3: the default is 0."""
    result = run(alone, "--to", "1", "--json")
    assert (0, [1, 1, 0]) == (result.exit_code, list(json.loads(result.stdout).values()))
    result = run(alone)
    assert result.stdout.startswith("lowered the leader epochs of 1 batches in 1 partitions; 0 ")
    with open_log(alone, read_only=True) as log:
        assert [0] == [batch.header.partition_leader_epoch for batch in log.batches()]


def test_lower_epochs_data_directories_change_all_partitions(tmp_path: Path) -> None:
    """INT-3: two directories of one manager; they are closed in order afterwards."""
    directories = [tmp_path / "one", tmp_path / "two"]
    for directory in directories:
        directory.mkdir()
    with manual_manager(*directories) as manager:
        manager.create_topic("orders", 4)
        for partition in range(4):
            append_texts(manager, "orders", partition, "a")
            manager.log("orders", partition).truncate_to(0)
            append_texts(manager, "orders", partition, "b")
    result = run(*directories, "--json")
    assert (0, {"partitions": 4, "batches": 4, "positions": 0}) == (
        result.exit_code,
        json.loads(result.stdout),
    )
    assert all((directory / ".kafka_cleanshutdown").exists() for directory in directories)


def test_lower_epochs_other_paths_are_refused(alone: Path, tmp_path: Path) -> None:
    """Status 2 for wrong arguments, such as a mixture of kinds; 3 for a directory without a log."""
    assert 2 == run(alone, "--to", "-1").exit_code
    other = tmp_path / "other"
    other.mkdir()
    assert 3 == run(other / "missing").exit_code
    assert 2 == run(alone, other).exit_code
    with open_log(alone):
        assert 3 == run(alone).exit_code
