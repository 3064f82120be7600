"""Paths given by callers, and lists of segment files."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog import ConfigError, LogManager, ManagerConfig
from kafkalog.files.directories import as_paths, live_offsets, segment_files
from kafkalog.files.names import FileKind, FileState, SegmentFileName
from kafkalog.files.posix import PosixFileSystem


@pytest.mark.parametrize("one", ["logs", Path("logs")])
def test_as_paths_single_path_returns_one_path(one: str | Path) -> None:
    """USE-1: a text is a path and no list of letters."""
    assert (Path("logs").absolute(),) == as_paths(one)
    assert (Path("logs").absolute(), Path("/b")) == as_paths([one, "/b"])


def test_as_paths_bytes_or_empty_text_is_refused() -> None:
    """Neither is a directory that anybody meant."""
    for wrong in (b"logs", [b"logs"]):
        with pytest.raises(TypeError, match="paths must be text"):
            as_paths(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must not be empty"):
        as_paths([""])


@pytest.mark.parametrize("kind", [str, Path])
def test_manager_single_path_creates_one_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    """USE-1: also for the examination, and for the directories of a config."""
    monkeypatch.chdir(tmp_path)
    with LogManager(kind("logs")) as manager:
        manager.create_topic("orders", 4)
        assert "orders" in {each.topic for each in manager.partitions()}
        assert 4 == len(manager.scan("orders").partitions)
    assert ["logs"] == [each.name for each in tmp_path.iterdir()]
    assert (tmp_path / "logs",) == kafkalog.examine_directories(kind("logs")).directories
    config = ManagerConfig(log_dirs=kind("more"))
    assert ("more",) == config.log_dirs
    LogManager(config=config).close()
    assert ["logs", "more"] == sorted(each.name for each in tmp_path.iterdir())


def test_manager_directories_relative_or_with_slash_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PAR-21, 20: a trailing slash and a relative path name the directory that they name."""
    monkeypatch.chdir(tmp_path)
    with LogManager(["data/"]) as manager:
        manager.create_topic("orders")
        assert tmp_path / "data" == manager.directory_of("orders", 0)
        with pytest.raises(kafkalog.LogLockedError):
            LogManager([tmp_path / "data"])
        manager.bring_online("data/")
    for each in ([str(tmp_path / "data") + "/"], ["./data"]):
        with LogManager(each) as manager:
            assert {"orders": (0,)} == manager.topics()
            assert manager.health().is_healthy
    with pytest.raises(ConfigError, match="the same data directory"):
        LogManager(["data", "data/"])


NAMES = (
    "00000000000000000007.log",
    "00000000000000000000.log",
    "00000000000000000003.log.deleted",
    "00000000000000000007.snapshot",
    "00000000000000000007.log.9.broken",
    "leader-epoch-checkpoint",
    "7.log",
)


def test_segment_files_every_state_is_listed(tmp_path: Path) -> None:
    """Names that no segment has are passed over."""
    for name in NAMES:
        (tmp_path / name).touch()
    assert {
        SegmentFileName(7, FileKind.LOG),
        SegmentFileName(0, FileKind.LOG),
        SegmentFileName(3, FileKind.LOG, FileState.DELETED),
        SegmentFileName(7, FileKind.SNAPSHOT),
        SegmentFileName(7, FileKind.LOG, FileState.BROKEN, 9),
    } == set(segment_files(PosixFileSystem(), tmp_path))


def test_live_offsets_of_one_kind_are_ascending(tmp_path: Path) -> None:
    """In any order of the disk, and without files that are being deleted."""
    for name in NAMES:
        (tmp_path / name).touch()
    disk = PosixFileSystem()
    assert [0, 7] == live_offsets(disk, tmp_path, FileKind.LOG)
    assert [7] == live_offsets(disk, tmp_path, FileKind.SNAPSHOT)
    assert [] == live_offsets(disk, tmp_path, FileKind.TIME_INDEX)
