"""Write permission of a log: which state refuses what, and what a failed change means."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog import LogConfig
from kafkalog._engine.gate_state import GateState
from kafkalog._engine.snapshot import LogSnapshot, PublishedSnapshot
from kafkalog.errors import (
    ForkedLogError,
    KafkaLogError,
    LogClosedError,
    LogOfflineError,
    LogStorageError,
    ReadOnlyLogError,
)
from kafkalog.files.atomic_files import DirectorySyncError
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.local_log import UndoFailedError
from kafkalog.log.segment_types import make_context
from kafkalog.log.write_gate import WriteGate
from tests.support.manual_time import ManualClock

DIRECTORY = Path("/data/orders-0")


class Rig:
    """A gate without a log, and a list of its calls."""

    def __init__(self, **state: bool) -> None:
        self.calls: list[Any] = []
        self.active = SimpleNamespace(is_active=True)
        segments: Any = SimpleNamespace(active=self.active)
        context = make_context(PosixFileSystem(), DIRECTORY, LogConfig(), ManualClock())
        context.set_callbacks(on_storage_error=self.calls.append, was_cleaned=bool)
        self.gate = WriteGate(
            context,
            PublishedSnapshot(LogSnapshot(segments, 0, 0, 0)),
            GateState(**state),
            reopen=self.reopen,
            append_delayed=lambda: self.calls.append("append"),
            on_offline=lambda error: self.calls.append(("offline", error)),
            pause_cleaning=self.pause_cleaning,
        )

    def reopen(self) -> None:
        """Open the files of an idle log."""
        self.calls.append("reopen")
        self.gate.state.set_idle(False)

    @contextmanager
    def pause_cleaning(self) -> Iterator[None]:
        """Record the pause."""
        self.calls.append("pause")
        yield
        self.calls.append("resume")


def closed() -> Rig:
    """Return a rig whose log was closed, read-only and offline too: closed counts."""
    rig = Rig(is_read_only=True)
    rig.gate.mark_offline(OSError(), notify=False)
    rig.gate.state.close()
    return rig


def offline() -> Rig:
    """Return a rig whose log is offline."""
    rig = Rig()
    rig.gate.mark_offline(OSError("the disk is gone"), notify=False)
    return rig


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (closed, LogClosedError, "is closed"),
        (lambda: Rig(is_read_only=True), ReadOnlyLogError, "is open read-only"),
        (offline, LogOfflineError, "the disk is gone; reopen it to recover"),
    ],
)
def test_closed_gate_raises_the_reason_from_every_method(
    make: Callable[[], Rig], error: type[KafkaLogError], text: str
) -> None:
    """The lock is released, and no file of an idle log was opened."""
    rig = make()
    gate = rig.gate
    for call in (gate.ensure_owner, gate.ensure_writable, gate.pause_cleaning):
        with pytest.raises(error, match=text):
            call()
    for context in (gate.owned, gate.writable):
        with pytest.raises(error, match=text), context():
            pytest.fail("entered")
    assert not gate.lock._is_owned()  # type: ignore[attr-defined]
    assert [] == rig.calls


def test_gate_in_a_forked_child_refuses_writes() -> None:
    """The parent owns the log; the error names both processes."""
    gate = Rig().gate
    assert gate.can_write()
    child = os.fork()
    if not child:
        code = 1
        try:
            gate.ensure_owner()
        except ForkedLogError as error:
            expected = f"opened by process {os.getppid()}, not by this process ({os.getpid()})"
            code = 0 if expected in str(error) and not gate.can_write() else 2
        finally:
            os._exit(code)
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_gate_of_an_idle_log_reopens_its_files_only_for_a_write() -> None:
    """A call that writes nothing leaves the log idle."""
    rig = Rig(is_idle=True)
    with rig.gate.owned():
        assert rig.gate.state.is_idle
    with rig.gate.pause_cleaning():
        assert ["pause"] == rig.calls
    with rig.gate.writable():
        assert rig.gate.lock._is_owned()  # type: ignore[attr-defined]
    rig.gate.ensure_writable()
    assert ["pause", "resume", "reopen"] == rig.calls


def test_gate_goes_offline_once_and_notifies_once() -> None:
    """The first error stays; an error that the caller has reported is not reported again."""
    rig, first = Rig(), OSError("first")
    assert rig.gate.can_write()
    rig.gate.mark_offline(first)
    rig.gate.mark_offline(OSError("second"))
    assert [("offline", first)] == rig.calls
    assert rig.gate.state.offline_error is first
    assert not rig.gate.can_write()
    quiet = Rig()
    quiet.gate.mark_offline(first, notify=False)
    assert [] == quiet.calls
    assert quiet.gate.state.offline_error is first


@pytest.mark.parametrize(
    ("error", "is_active", "is_offline"),
    [
        (OSError(errno.ENOSPC, "full"), True, False),
        (OSError(errno.EIO, "broken"), False, True),
        (DirectorySyncError(errno.EIO, "not synced"), True, True),
        (UndoFailedError(errno.EIO, "not undone"), True, True),
        (KeyError("no error of the disk"), False, False),
    ],
)
def test_failed_change_takes_the_log_offline_if_it_had_begun(
    error: Exception, is_active: bool, is_offline: bool
) -> None:
    """Nothing had changed if the active segment takes appends; a failed sync always counts."""
    rig = Rig()
    rig.active.is_active = is_active
    is_of_disk = isinstance(error, OSError)
    expected = LogStorageError if is_of_disk else KeyError
    with pytest.raises(expected), rig.gate.mark_offline_on_error("changing"):
        raise error
    assert is_offline == (rig.gate.state.offline_error is not None)
    assert is_of_disk == any(isinstance(call, LogStorageError) for call in rig.calls)


def test_successful_change_leaves_the_gate_unchanged() -> None:
    """No callback is called."""
    rig = Rig()
    with rig.gate.mark_offline_on_error("changing"):
        pass
    assert ([], True) == (rig.calls, rig.gate.can_write())
