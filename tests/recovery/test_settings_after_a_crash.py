"""What a crash leaves under some settings is read under others."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import LogConfig, Record, open_log

PREALLOCATED = LogConfig(segment_bytes=20_000, segment_index_bytes=120, preallocate=True)
PLAIN = LogConfig(segment_bytes=60_000, segment_index_bytes=120)


def left_by_a_crash(directory: Path) -> None:
    """Leave a sealed segment whose preallocated tail was not trimmed, and one behind it."""
    with open_log(directory, config=PREALLOCATED) as log:
        for number in range(10):
            log.append([Record(value=b"%d" % number)])
        log.roll()
        log.append([Record(value=b"behind")])
    with (directory / f"{0:020d}.log").open("rb+") as file:
        file.truncate(PREALLOCATED.segment_bytes)
    # A crash: nothing is said of an orderly stop, and nothing is known to be on the disk.
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        for path in (directory / name, directory.parent / name):
            path.unlink(missing_ok=True)


@pytest.mark.parametrize("first", [PREALLOCATED, PLAIN], ids=["the same", "others"])
def test_preallocated_tail_of_a_crash_is_no_damage_under_other_settings(
    tmp_path: Path, first: LogConfig
) -> None:
    """
    A recovery cuts zeros behind a sealed segment; a later opening does not call them damage.

    Found by the judge of kills: the recovery passed over them in memory only, the clean start after
    it looked for none, since its settings preallocate nothing, and reading raised.
    """
    directory = tmp_path / "t-0"
    left_by_a_crash(directory)
    for config in (first, PLAIN, PLAIN):
        with open_log(directory, config=config) as log:
            assert [*(b"%d" % each for each in range(10)), b"behind"] == [
                record.value for record in log.records(0)
            ]
            assert () == log.fences()
    with open_log(directory, config=PLAIN, read_only=True) as log:
        assert 11 == len(list(log.records(0)))
