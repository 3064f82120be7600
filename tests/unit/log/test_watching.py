"""Who watches a log is told of what there may be to read."""

from __future__ import annotations

from pathlib import Path

from kafkalog import Record
from kafkalog.log.log import partition_of
from tests.support.logs import manual_log


def test_watcher_is_told_of_appends_and_the_end(tmp_path: Path) -> None:
    """After each append, the high watermark, and the close; no longer once it has left."""
    told: list[int] = []
    log = manual_log(tmp_path / "orders-0")
    leave = log.watch(lambda: told.append(partition_of(log).local.snapshot.end_offset))
    again = log.watch(lambda: told.append(-1))
    log.append([Record(value=b"v")])
    log.append_columns(None, [b"v", b"w"])
    assert told == [1, -1, 3, -1]
    again()
    again()
    log.set_high_watermark(2)
    assert told[4:] == [3]
    leave()
    log.append([Record(value=b"v")])
    last = log.watch(lambda: told.append(-2))
    log.close()
    last()
    assert told[5:] == [-2]


def test_watcher_that_fails_fails_nothing(tmp_path: Path) -> None:
    """What is in the log is in the log, and the next one is told."""

    def fail() -> None:
        raise RuntimeError("a watcher's own fault")

    told: list[str] = []
    with manual_log(tmp_path / "orders-0") as log:
        log.watch(fail)
        log.watch(lambda: told.append("told"))
        assert log.append([Record(value=b"v")]).first_offset == 0
    assert told == ["told", "told"]
