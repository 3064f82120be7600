"""Tables of the everyday verbs, which fit the terminal: columns of low rank go first.

Thread-safety: pure functions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from kafkalog.cli.streams import escape

__all__ = ["TableColumn", "output_width", "table_lines"]

_GAP: Final = "  "
_NAME_MIN: Final = 16


class TableColumn(NamedTuple):
    """
    A column.

    Attributes:
        title: its heading.
        rank: 0 for a column that is always shown; those of the highest rank are left out first.
        is_number: True to align it to the right.
    """

    title: str
    rank: int = 0
    is_number: bool = False


def output_width() -> int | None:
    """Return the width of the terminal or of COLUMNS; None for a pipe or a file: no limit."""
    text = os.environ.get("COLUMNS", "")
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError, AttributeError):
        return None


def table_lines(
    columns: Sequence[TableColumn], rows: Sequence[Sequence[str]], width: int | None
) -> Iterator[str]:
    """
    Yield the lines of a table, its heading first.

    The first column is the name of a row. A name too long for the width has a line to itself.

    Args:
        columns: the columns.
        rows: the cells of each row.
        width: largest length of a line; None for no limit.
    """
    cells = [
        [escape(cell).replace("\n", "\\n").replace("\t", "\\t") for cell in row] for row in rows
    ]
    widths = [
        max(len(column.title), *(len(row[slot]) for row in cells), 0)
        for slot, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    if width is not None:
        shown = _fitting(columns, widths, width)
        others = sum(widths[slot] + len(_GAP) for slot in shown[1:])
        widths[0] = min(widths[0], max(width - others, _NAME_MIN))
    yield _line(columns, [column.title for column in columns], widths, shown)
    for row in cells:
        name = row[0]
        if len(name) > widths[0]:
            yield name
            row = ["", *row[1:]]
        yield _line(columns, row, widths, shown)


def _fitting(columns: Sequence[TableColumn], widths: Sequence[int], width: int) -> list[int]:
    """Return the columns to show."""
    shown = list(range(len(columns)))
    for rank in sorted({column.rank for column in columns if column.rank}, reverse=True):
        name = min(widths[0], max(width // 3, _NAME_MIN))
        if name + sum(widths[slot] + len(_GAP) for slot in shown[1:]) <= width:
            break
        shown = [slot for slot in shown if columns[slot].rank != rank]
    return shown


def _line(
    columns: Sequence[TableColumn], row: Sequence[str], widths: Sequence[int], shown: Sequence[int]
) -> str:
    cells = (
        row[slot].rjust(widths[slot]) if columns[slot].is_number else row[slot].ljust(widths[slot])
        for slot in shown
    )
    return _GAP.join(cells).rstrip()
