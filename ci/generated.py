"""A page that is made from the code: compared with what is there, or written."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

__all__ = ["compare_or_write"]


def compare_or_write(path: Path, page: Callable[[], str], script: str) -> int:
    """
    Compare a page with what it has to be, or write it with `--write`; return the exit status.

    Args:
        path: the page.
        page: makes its text.
        script: name of the script that was called, for messages.
    """
    name = f"docs/{path.name}"
    parser = argparse.ArgumentParser(description=f"Compare {name} with the code.")
    parser.add_argument("--write", action="store_true", help="write the page")
    expected = page()
    if parser.parse_args().write:
        path.write_text(expected, "utf-8")
        return 0
    if not path.exists() or path.read_text("utf-8") != expected:
        print(f"{name} is not up to date: python ci/{script} --write")
        return 1
    return 0
