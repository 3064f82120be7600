"""A Java process beside the benchmark: one source file of ours, run with Kafka's jars.

It stays warm over a run: it answers each line on its standard input with a line of numbers.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Self


class JavaProcess:
    """The process; a context manager, at whose end it ends."""

    def __init__(self, source: Path, jars: Path, *arguments: str) -> None:
        command = ["java", "-XX:+UseG1GC", "-Xms1g", "-Xmx4g", "-cp", f"{jars}/*"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error", str(source), *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.communicate()

    def ask(self, line: str = "") -> list[int]:
        """Send a line; return the numbers of the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return list(map(int, self._process.stdout.readline().split()))
