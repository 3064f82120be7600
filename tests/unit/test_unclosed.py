"""Tests of warnings about logs and managers that a program drops, or ends with, unclosed."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import kafkalog
from kafkalog import LogManager, Record, open_log
from tests.support.manual_time import ManualClock, ManualScheduler


@contextmanager
def collected() -> Iterator[list[str]]:
    """Yield the texts of the resource warnings that came by the end of a collection."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        yield texts
        gc.collect()
    texts += [str(each.message) for each in caught if each.category is ResourceWarning]


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("kafkalog")]


@pytest.mark.parametrize("flush_ms", ["9223372036854775807", "60000"])
def test_log_dropped_unclosed_warns_and_releases_its_lock_and_thread(
    tmp_path: Path, flush_ms: str
) -> None:
    """The warning names the log; a pending flush does not keep it alive."""
    gc.collect()
    before = threads()
    with collected() as said:
        log = open_log(tmp_path / "t-0", config={"flush.ms": flush_ms})
        log.append([Record(value=b"kept")])
        del log
    for thread in threads():
        if thread not in before:
            thread.join(timeout=60)

    name = f"log at {tmp_path / 't-0'}"
    assert said == [f"unclosed {name}: the next opening has to recover it; close it, or use `with`"]
    assert threads() == before
    with open_log(tmp_path / "t-0") as log:
        assert [record.value for record in log.records()] == [b"kept"]


def test_read_only_log_dropped_unclosed_warns(tmp_path: Path) -> None:
    """It holds files and mappings, and needs no recovery."""
    open_log(tmp_path / "t-0").close()
    with collected() as said:
        log = open_log(tmp_path / "t-0", read_only=True)
        del log

    assert said == [f"unclosed read-only log at {tmp_path / 't-0'}: close it, or use `with`"]


def test_log_closed_in_any_form_does_not_warn(tmp_path: Path) -> None:
    """By `with`, by `close`, twice; a log that failed to open does not warn either."""
    with collected() as said:
        with open_log(tmp_path / "t-0"):
            pass
        log = open_log(tmp_path / "t-0")
        log.close()
        log.close()
        del log
        with pytest.raises(kafkalog.NotALogError):
            open_log(tmp_path / "none-0", create=False)

    assert said == []


def test_manager_dropped_unclosed_warns_once(tmp_path: Path) -> None:
    """It closes its logs, so that they do not warn too."""
    clock = ManualClock()
    with collected() as said:
        manager = LogManager(tmp_path, clock=clock, scheduler=ManualScheduler(clock))
        manager.create_topic("orders", 3)
        manager.log("orders").append([Record(value=b"x")])
        path = manager.directory_of("orders", 0)
        del manager

    assert said == [
        f"unclosed manager of {path}: the next opening has to recover it; close it, or use `with`"
    ]


def test_periodic_tasks_of_a_dropped_log_are_cancelled(tmp_path: Path) -> None:
    """The caller's scheduler keeps none of them."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    with collected() as said:
        log = open_log(tmp_path / "t-0", clock=clock, scheduler=scheduler, config={"flush.ms": 10})
        log.append([Record(value=b"x")])
        del log

    assert len(said) == 1
    assert scheduler.pending == []


PROGRAM = """
import os, sys, kafkalog
log = kafkalog.open_log(sys.argv[1] + "/t-0")
log.append([kafkalog.Record(value=b"x")])
manager = kafkalog.LogManager(sys.argv[1] + "/data")
with kafkalog.open_log(sys.argv[1] + "/closed-0"):
    pass
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_program_ending_with_an_open_log_and_manager_warns_of_both(tmp_path: Path) -> None:
    """Once, in the process that opened them, if the interpreter shows such warnings."""
    said: list[str] = []
    for arguments in (["-X", "dev"], []):
        done = subprocess.run(
            [sys.executable, *arguments, "-c", textwrap.dedent(PROGRAM), tmp_path / str(len(said))],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
            env={**os.environ, "PYTHONWARNINGS": ""},
        )
        said.append(done.stderr)

    assert said[0].count("ResourceWarning: unclosed log at ") == 1
    assert said[0].count("ResourceWarning: unclosed manager of ") == 1
    assert said[0].count("unclosed ") == 2
    assert said[1] == ""
