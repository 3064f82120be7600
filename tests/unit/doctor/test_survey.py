"""Tests of data and partition directories in the survey, which changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import LogStorageError, NotALogError
from kafkalog.doctor.check_context import size_text
from kafkalog.doctor.findings import named
from tests.support.doctor_fixtures import checks, examined, only
from tests.support.golden import CLEAN, UNCLEAN, data_directory, unchanged

# The files of the golden directories are as old as the checkout.
FAR_AHEAD_MS = 4_000_000_000_000


def test_broker_directory_is_examined_and_not_changed() -> None:
    """A directory of a real broker, closed cleanly."""
    directory = data_directory(CLEAN)
    with unchanged(directory):
        diagnosis = examined(directory, age_files=False, now_ms=FAR_AHEAD_MS)
    finding = only(diagnosis, "files.unfinished")
    assert "24 files .deleted" in finding.seen
    assert (34, 155, 7_136_439) == (
        diagnosis.partition_count,
        diagnosis.segment_count,
        diagnosis.log_bytes,
    )


def test_directory_of_a_killed_broker_is_examined_and_not_changed() -> None:
    """It has preallocated indexes, and an unfinished compaction and deletion."""
    directory = data_directory(UNCLEAN)
    with unchanged(directory):
        diagnosis = examined(directory, age_files=False, now_ms=FAR_AHEAD_MS)
    assert [
        "shutdown.unclean",
        "files.unfinished",
        "files.unfinished",
        "partitions-delete",
    ] == checks(diagnosis)
    assert 9 == len(diagnosis.findings[0].paths)


@pytest.mark.parametrize("names", [(), (".lock",), ("lost+found",)])
def test_empty_directory_is_a_new_data_directory(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Files of the file system do not count."""
    for name in names:
        (tmp_path / name).mkdir()
    diagnosis = examined(tmp_path)
    assert 0 == diagnosis.partition_count
    assert "meta.properties" in checks(diagnosis)


def test_empty_partition_directory_is_recognised_by_its_name(tmp_path: Path) -> None:
    """A manager has just created it."""
    directory = tmp_path / "orders-7"
    directory.mkdir()
    diagnosis = examined(directory)
    assert [] == checks(diagnosis)
    assert (1, 0) == (diagnosis.partition_count, diagnosis.segment_count)


def test_other_directory_is_refused(tmp_path: Path) -> None:
    """The error names its content."""
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(NotALogError, match=r"letter\.txt"):
        examined(tmp_path)


@pytest.mark.parametrize("name", ["missing", "file"])
def test_path_that_is_not_a_directory_is_refused(tmp_path: Path, name: str) -> None:
    """Missing, or a file."""
    (tmp_path / "file").write_text("")
    with pytest.raises(NotALogError, match="not a directory"):
        examined(tmp_path / name)


def test_unreadable_data_directory_is_a_storage_error(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unreadable partition is a finding."""
    from kafkalog.files.posix import PosixFileSystem

    listed = PosixFileSystem.list

    def refuse(self: PosixFileSystem, directory: Path) -> list[str]:
        if directory == refused:
            raise PermissionError(13, "Permission denied", str(directory))
        return listed(self, directory)

    monkeypatch.setattr(PosixFileSystem, "list", refuse)
    refused = data / "orders-0"
    finding = only(examined(data), "files.damaged")
    assert (refused,) == finding.paths
    assert "Permission denied" in finding.seen
    refused = data
    with pytest.raises(LogStorageError, match="Permission denied"):
        examined(data)


def test_file_removed_during_the_survey_is_left_out(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer may be active."""
    from kafkalog.files.posix import PosixFileSystem

    listed = PosixFileSystem.list
    monkeypatch.setattr(
        PosixFileSystem, "list", lambda self, path: [*listed(self, path), "gone", "gone-0"]
    )
    assert [] == checks(examined(data))


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1536 << 10, "1.5 MiB"),
        (3 << 30, "3.0 GiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 60, "5242880.0 TiB"),
    ],
)
def test_size_is_shown_in_the_largest_fitting_unit(size_bytes: int, expected: str) -> None:
    """With one decimal digit."""
    assert expected == size_text(size_bytes)


@pytest.mark.parametrize(
    ("names", "expected"),
    [(["a"], "a"), (["a", "b", "c"], "a, b, c"), (list("abcde"), "a, b, c and 2 others")],
)
def test_long_list_of_names_is_cut(names: list[str], expected: str) -> None:
    """Three names suffice as an example."""
    assert expected == named(names)
