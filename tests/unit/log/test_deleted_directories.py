"""Directories that a broker deleted, disowned or moved, opened as logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import NotALogError
from kafkalog.files.names import DirectoryState
from tests.support.golden import snapshot
from tests.support.logs import manual_log, numbered

ID = "0123456789abcdef0123456789abcdef"
META = "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=1\n"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data directory with one live partition of 20 records."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "meta.properties").write_text(META, encoding="utf-8")
    with manual_log(data / "orders-0") as log:
        log.append(numbered(0, 20))
    return data


def renamed(data: Path, state: DirectoryState) -> Path:
    """Give the partition's directory the name of a state."""
    return (data / "orders-0").rename(data / f"orders-0.{ID}{state.value}")


STATES = [state for state in DirectoryState if state]


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("state", STATES)
def test_deleted_directory_next_to_its_partition_is_refused(
    data: Path, state: DirectoryState, read_only: bool
) -> None:
    """The recovery point and log start of that name belong to the live directory."""
    deleted = renamed(data, state)
    with manual_log(data / "orders-0") as log:
        log.append(numbered(0, 3))
    before = snapshot(data)
    with pytest.raises(NotALogError, match="is next to orders-0:") as caught:
        manual_log(deleted, read_only=read_only)
    assert str(deleted) == caught.value.path
    assert before == snapshot(data)
    with manual_log(data / "orders-0") as log:
        assert log.recovery_report.clean


def test_two_deleted_directories_of_a_partition_are_refused(data: Path) -> None:
    """A line of a checkpoint cannot belong to both."""
    first = renamed(data, DirectoryState.DELETE)
    second = data / first.name.replace("0123", "4567")
    second.mkdir()
    for directory in (first, second):
        with pytest.raises(NotALogError, match="is next to"):
            manual_log(directory)


@pytest.mark.parametrize("state", STATES)
def test_only_directory_of_a_partition_opens_with_its_checkpoints(
    data: Path, state: DirectoryState
) -> None:
    """The lines were written for its former name, or for the same copy."""
    with manual_log(renamed(data, state)) as log:
        assert log.recovery_report.clean
        assert 20 == log.append(numbered(20, 1)).first_offset
    lines = (data / "recovery-point-offset-checkpoint").read_text(encoding="utf-8").splitlines()
    assert ["0", "1", "orders 0 21"] == lines


@pytest.mark.parametrize("state", STATES)
def test_deleted_directory_elsewhere_opens_as_a_standalone_log(
    data: Path, tmp_path: Path, state: DirectoryState
) -> None:
    """No checkpoint has its recovery point: all of it is scanned."""
    moved = renamed(data, state).rename(tmp_path / f"orders-0.{ID}{state.value}")
    with manual_log(moved, read_only=True) as log:
        assert 20 == len(list(log.records()))
    with manual_log(moved) as log:
        assert not log.recovery_report.clean
        assert 20 == log.recovery_report.scanned_records
        assert 20 == log.append(numbered(20, 1)).first_offset
    assert (moved / "recovery-point-offset-checkpoint").exists()
