"""A segment that another tool has copied under a second name: each opening serves the same."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalog import Record, open_log


def offsets_of(directory: Path, *, read_only: bool) -> list[int]:
    """Return the offsets that an opening serves."""
    with open_log(directory, read_only=read_only) as log:
        return [each.offset for each in log.records(on_corrupt="skip")]


@pytest.mark.parametrize("torn", [b"", b"\0" * 8, b"torn in the middle"])
def test_copy_with_a_torn_end_is_left_out_at_once(tmp_path: Path, torn: bytes) -> None:
    """The last batch is whole in the lower copy; the higher one is longer by torn bytes."""
    directory = tmp_path / "orders-0"
    with open_log(directory) as log:
        log.truncate_fully_and_start_at(10)
        for number in range(4):
            log.append([Record(value=b"%d" % number * 50)])
    (directory / ".kafka_cleanshutdown").unlink()
    (directory / "recovery-point-offset-checkpoint").unlink()
    source = directory / f"{10:020d}.log"
    shutil.copy(source, directory / f"{9:020d}.log")
    data = bytearray(source.read_bytes())
    data[-5] ^= 1
    source.write_bytes(data + torn)
    expected = [10, 11, 12, 13]
    assert expected == offsets_of(directory, read_only=True)
    assert expected == offsets_of(directory, read_only=False)
    assert expected == offsets_of(directory, read_only=False)
    assert expected == offsets_of(directory, read_only=True)


def test_copy_that_was_continued_is_kept(tmp_path: Path) -> None:
    """A whole batch after the end of the lower copy belongs to the log."""
    directory = tmp_path / "orders-0"
    with open_log(directory) as log:
        log.truncate_fully_and_start_at(10)
        log.append([Record(value=b"first")])
        log.flush()
        shutil.copy(directory / f"{10:020d}.log", directory / f"{9:020d}.log")
        log.append([Record(value=b"second")])
    (directory / ".kafka_cleanshutdown").unlink()
    for read_only in (True, False, False, True):
        assert [10, 11] == offsets_of(directory, read_only=read_only)
