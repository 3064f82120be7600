"""Output of commands: lines, tables and JSON objects, at full width and without markup.

Thread-safety: one caller at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.segment import Segments
from rich.table import Table

__all__ = ["make_table", "percent", "print_json", "print_line", "print_table", "progress_bar"]

_WIDTH_MAX: Final = 10_000


def print_line(console: Console, line: str) -> None:
    """Print a line; names and messages are data, so markup in them has no effect."""
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def make_table(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """Return an empty table: columns of text, then of numbers."""
    table = Table(box=None, pad_edge=False)
    for title in texts:
        table.add_column(title)
    for title in numbers:
        table.add_column(title, justify="right")
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table at its full width: a cut name or number is of no use."""
    options = console.options.update(max_width=_WIDTH_MAX)
    width = max(console.width, Measurement.get(console, options, table).maximum)
    lines = console.render(table, console.options.update(max_width=width))
    console.print(Segments(lines), crop=False)


def print_json(console: Console, shown: Any) -> None:
    """Print plain values as one line."""
    console.file.write(json.dumps(shown, separators=(",", ":")) + "\n")


def percent(part: int, whole: int) -> str:
    """Return a share with one decimal."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """
    Yield a callback (name, bytes done, bytes in all) that moves a bar: one bar for each name.

    If the console is not a terminal, nothing is written, not even the line that a bar leaves.
    """
    if not console.is_terminal:
        yield lambda _what, _done, _total: None
        return
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=console,
        transient=True,
    ) as bars:
        tasks: dict[str, Any] = {}

        def update_bar(what: str, done: int, total: int) -> None:
            if what not in tasks:
                for task in tasks.values():
                    bars.update(task, visible=False)
                tasks[what] = bars.add_task(what, total=total)
            bars.update(tasks[what], completed=done, total=total)

        yield update_bar
