"""A process of a relay, its reports in lines of JSON, and its end."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from tests.proof.harness import ROOT

__all__ = ["Ending", "RelayProcess"]

LONGEST_SECONDS = 150


class RelayProcess:
    """
    One leg's process. It works until its standard input ends; every wait for it has a limit.

    Args:
        command: what is run.
        errors: the file for its standard error.

    Attributes:
        lines: its output, each line as [what, argument, ...]; a line that is cut is left out.
    """

    def __init__(self, command: Sequence[str], errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as stderr:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        self._watchdog = threading.Timer(LONGEST_SECONDS, self._process.kill)
        self.lines = self._read()

    def __enter__(self) -> Self:
        self._watchdog.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if _error[0] is not None:
            self._process.kill()
        self._process.wait(LONGEST_SECONDS)
        self._watchdog.cancel()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def status(self) -> int | None:
        """Its exit status, when it has ended."""
        return self._process.returncode

    @property
    def error_text(self) -> str:
        """The end of what it wrote to its standard error."""
        return self._errors.read_text(errors="replace")[-1500:]

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    def finish(self) -> None:
        """End its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _read(self) -> Iterator[list[Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith(b"\n"):
                yield json.loads(line)


class Ending:
    """
    Does something once: at a moment, or soon after a line of a process.

    Args:
        act: what is done.
        seconds: when, from `begin` on.
        line: output of the process before; with None the moment alone counts.
        count: how many of these lines come first.
        delay_seconds: how long after the last of them.
    """

    def __init__(
        self,
        act: Callable[[], object],
        seconds: float,
        *,
        line: str | None = None,
        count: int = 1,
        delay_seconds: float = 0,
    ) -> None:
        self._act = act
        self._seconds = seconds
        self._line = line
        self._left = count
        self._delay_seconds = delay_seconds
        self._guard = threading.Lock()
        self._is_done = False
        self._timers: list[threading.Timer] = []

    def begin(self) -> None:
        """Let the time run."""
        self._start(self._seconds)

    def heard(self, what: str) -> None:
        """Take note of a line."""
        if self._timers and what == self._line:
            self._left -= 1
            if self._left == 0:
                self._start(self._delay_seconds)

    def join(self) -> None:
        """Let nothing happen later."""
        for timer in self._timers:
            timer.cancel()
            timer.join()

    def _start(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._do)
        self._timers.append(timer)
        timer.start()

    def _do(self) -> None:
        with self._guard:
            if not self._is_done:
                self._is_done = True
                self._act()
