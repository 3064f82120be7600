"""Process of a benchmark that answers each line on its standard input with numbers."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Self


class LineProcess:
    """The process; a context manager, at whose end it ends. It stays warm over a run."""

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str] | None = None):
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=None if environment is None else dict(environment),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()

    def ask(self, line: str = "") -> list[int]:
        """Send a line; return the numbers of the answer, of which there are none if it has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return list(map(int, self._process.stdout.readline().split()))
