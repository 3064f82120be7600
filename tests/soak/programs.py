"""Programs of a soak: processes that are started, sampled, ended and started again.

Thread-safety: none; all belong to the event loop of the conductor.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.proof.harness import ROOT

__all__ = ["Program", "free_port"]

END_SECONDS = 60
# A line of a report: all clients with their numbers.
LINE_BYTES = 1 << 20


def free_port() -> int:
    """Return a port of this machine that is free now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Program:
    """
    One program, which runs at most once at a time.

    Args:
        name: of its samples.
        words: arguments of the interpreter.
        errors: file that its standard error is appended to.

    Attributes:
        report: values of the last lines of JSON that it has printed.
        violations: all violations that it has reported, each once.
        starts: number of its starts.
    """

    def __init__(self, name: str, words: Sequence[str | Path], errors: Path) -> None:
        self.name = name
        self.report: dict[str, Any] = {}
        self.violations: dict[str, None] = {}
        self.starts = 0
        self._words = [str(word) for word in words]
        self._errors = errors
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """Number of its process; None while it is not running."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def start(self) -> None:
        """Start it."""
        with self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._words,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=LINE_BYTES,
            )
        self.starts += 1
        self._reading = asyncio.create_task(self._read(self._process))

    async def end(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """
        Send a signal, and wait; a program that does not end in a minute is killed.

        Returns:
            its exit status, and the seconds that it took.
        """
        process, begun = self._process, time.monotonic()
        if process is None or self._reading is None:
            return 0, 0.0
        if process.returncode is None:
            process.send_signal(number)
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            self.violations[f"{self.name} did not end within {END_SECONDS} s of a signal"] = None
            process.kill()
        status = await process.wait()
        await self._reading
        return status, time.monotonic() - begun

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if not line.startswith(b"{"):
                continue
            self.report |= json.loads(line)
            self.violations |= dict.fromkeys(self.report.get("violations", ()))
