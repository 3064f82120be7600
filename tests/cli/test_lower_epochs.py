"""`kafkalog lower-epochs`: partitions and data directories, its output, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kafkalog import open_log
from kafkalog.cli.app import app
from tests.support.logs import manual_log, numbered
from tests.support.managers import manual_manager


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(app, ["lower-epochs", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return result


@pytest.fixture(name="alone")
def fixture_alone(tmp_path: Path) -> Path:
    """A partition directory that stands alone, whose last batch has epoch 2."""
    with manual_log(tmp_path / "orders-0") as log:
        for _ in range(2):
            log.append(numbered(0, 2))
            log.truncate_to(0)
        log.append(numbered(0, 2))
    return tmp_path / "orders-0"


def test_lower_epochs_of_a_partition_says_what_it_changed(alone: Path) -> None:
    """INT-3: down to 0 unless another number is given."""
    result = run(alone, "--to", "1", "--json")
    assert (0, [1, 1, 0]) == (result.exit_code, list(json.loads(result.stdout).values()))
    result = run(alone)
    assert result.stdout.startswith("lowered the leader epochs of 1 batches in 1 partitions; 0 ")
    with open_log(alone, read_only=True) as log:
        assert [0] == [batch.header.partition_leader_epoch for batch in log.batches()]


def test_lower_epochs_of_data_directories_takes_all_their_partitions(tmp_path: Path) -> None:
    """INT-3: two directories of one manager; they are closed in order afterwards."""
    directories = [tmp_path / "one", tmp_path / "two"]
    for directory in directories:
        directory.mkdir()
    with manual_manager(*directories) as manager:
        manager.create_topic("orders", 4)
        for partition in range(4):
            manager.append("orders", partition, "a")
            manager.log("orders", partition).truncate_to(0)
            manager.append("orders", partition, "b")
    result = run(*directories, "--json")
    assert (0, {"partitions": 4, "batches": 4, "positions": 0}) == (
        result.exit_code,
        json.loads(result.stdout),
    )
    assert all((directory / ".kafka_cleanshutdown").exists() for directory in directories)


def test_lower_epochs_refuses_what_is_no_log_and_a_mixture(alone: Path, tmp_path: Path) -> None:
    """Status 2 for wrong arguments, 3 for what cannot be done."""
    assert 2 == run(alone, "--to", "-1").exit_code
    other = tmp_path / "other"
    other.mkdir()
    assert 3 == run(other / "missing").exit_code
    assert 2 == run(alone, other).exit_code
    with open_log(alone):
        assert 3 == run(alone).exit_code
