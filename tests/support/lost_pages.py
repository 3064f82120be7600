"""Programs that read a log whose file loses pages: each in a separate process.

A lost page of a mapped file raises a signal that ends a process. If it is not caught, one test
fails, and not the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from kafkalog._core.mapping import FileMapping
from kafkalog.files import mappings
from kafkalog.files.mappings import MappedOrigin

__all__ = ["FailingDisk", "run_program"]

ROOT = Path(__file__).resolve().parents[2]


def run_program(program: str, *arguments: str | Path, expected: int = 0) -> list[str]:
    """Run a program with these arguments; return the lines it printed, and check its status."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env=environment_of_programs(),
    )
    assert done.returncode == expected, f"status {done.returncode}: {done.stderr[-2000:]}"
    return done.stdout.splitlines()


def environment_of_programs() -> dict[str, str]:
    """Return the environment, with SIGBUS left to the program where a sanitizer would take it."""
    options = os.environ.get("ASAN_OPTIONS", "")
    return {**os.environ, "ASAN_OPTIONS": f"{options}:handle_sigbus=0".lstrip(":")}


class FailingDisk:
    """
    A disk that maps one file as any other, until it cannot read it from some position on.

    The file itself stays as it is. Mappings show a copy of it; the copy is what is cut.

    Args:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._readable: int | None = None
        self._copies: list[Path] = []
        self._directory = Path(tempfile.mkdtemp())
        self._map_file = mappings.map_file
        mappings.map_file = self._map

    def fail(self, position: int) -> None:
        """Lose everything from a position on, in what is mapped and in what will be."""
        self._readable = position
        for copy in self._copies:
            os.truncate(copy, position)

    def work(self) -> None:
        """Read again what is mapped from now on."""
        self._readable = None

    def _map(self, descriptor: int, size: int, path: Path, identity: tuple[int, int]) -> memoryview:
        if str(path) != self._path:
            return self._map_file(descriptor, size, path, identity)
        copy = self._directory / str(len(self._copies))
        copy.write_bytes(os.pread(descriptor, size, 0))
        self._copies.append(copy)
        with copy.open("rb") as file:
            mapping = FileMapping(file.fileno(), size, MappedOrigin(path, identity))
        if self._readable is not None:
            os.truncate(copy, self._readable)
        return memoryview(mapping)
