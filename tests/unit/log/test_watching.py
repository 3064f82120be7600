"""Tests of watchers of a log, which are notified of new data."""

from __future__ import annotations

from pathlib import Path

from kafkalog import Record
from kafkalog.log.log import partition_of
from tests.support.logs import manual_log


def test_watcher_is_notified_of_appends_and_close(tmp_path: Path) -> None:
    """After each append, high watermark and close; not after it was unregistered."""
    calls: list[int] = []
    log = manual_log(tmp_path / "orders-0")
    leave = log.watch(lambda: calls.append(partition_of(log).local.snapshot.end_offset))
    again = log.watch(lambda: calls.append(-1))
    log.append([Record(value=b"v")])
    log.append_columns(None, [b"v", b"w"])
    assert calls == [1, -1, 3, -1]
    again()
    again()
    log.set_high_watermark(2)
    assert calls[4:] == [3]
    leave()
    log.append([Record(value=b"v")])
    last = log.watch(lambda: calls.append(-2))
    log.close()
    last()
    assert calls[5:] == [-2]


def test_watcher_raises_append_succeeds(tmp_path: Path) -> None:
    """The records are in the log, and the next watcher is notified."""

    def fail() -> None:
        raise RuntimeError("a watcher's own fault")

    calls: list[str] = []
    with manual_log(tmp_path / "orders-0") as log:
        log.watch(fail)
        log.watch(lambda: calls.append("call"))
        assert log.append([Record(value=b"v")]).first_offset == 0
    assert calls == ["call", "call"]
