"""Check that `CHANGELOG.md` has the form of Keep a Changelog: `python ci/check_changelog.py`.

Checked: an Unreleased section comes first; versions are semantic, fall, and carry an ISO date;
headings below them are the six known ones, each at most once and in that order; every entry is a
bullet under such a heading, or a row of a table whose rows have as many cells as its first row; the
version of `pyproject.toml` is released here or still Unreleased.
"""

from __future__ import annotations

import datetime
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
RELEASE = re.compile(r"^## \[(\d+)\.(\d+)\.(\d+)\] - (\d{4}-\d{2}-\d{2})$")


class Reader:
    """Walks the lines once and collects what is wrong."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.versions: list[tuple[int, int, int]] = []
        self.is_unreleased_seen = False
        self.kind = -1
        self.is_in_section = False
        self.cell_count = 0

    def read(self, number: int, line: str) -> None:
        """Check the next line."""
        if line.startswith("|"):
            self._row(number, line)
            return
        self.cell_count = 0
        if line.startswith("## "):
            self._section(number, line)
        elif line.startswith("### "):
            self._heading(number, line)
        elif line.startswith(("- ", "* ")) and self.kind < 0:
            self._complain(number, "an entry stands under no heading")
        elif line.strip() and self.is_in_section and not line.startswith(("- ", "  ")):
            self._complain(number, "text in a section is no bullet")

    def _row(self, number: int, line: str) -> None:
        cell_count = len(re.findall(r"(?<!\\)\|", line)) - 1
        if self.kind < 0:
            self._complain(number, "a row of a table stands under no heading")
        elif not line.endswith("|") or cell_count != (self.cell_count or cell_count):
            self._complain(number, f"a row of {self.cell_count} cells must end with |, got {line}")
        self.cell_count = self.cell_count or cell_count

    def _section(self, number: int, line: str) -> None:
        self.kind, self.is_in_section = -1, True
        if line == "## [Unreleased]":
            if self.versions or self.is_unreleased_seen:
                self._complain(number, "Unreleased is not the first section")
            self.is_unreleased_seen = True
            return
        match = RELEASE.match(line)
        if match is None:
            self._complain(number, "want `## [1.2.3] - 2026-01-31` or `## [Unreleased]`")
            return
        version = (int(match[1]), int(match[2]), int(match[3]))
        if self.versions and version >= self.versions[-1]:
            self._complain(number, "versions do not fall")
        self.versions.append(version)
        try:
            datetime.date.fromisoformat(match[4])
        except ValueError:
            self._complain(number, f"{match[4]} is no date")

    def _heading(self, number: int, line: str) -> None:
        name = line.removeprefix("### ")
        if not self.is_in_section or name not in KINDS:
            self._complain(number, f"heading {name!r} is none of {', '.join(KINDS)}")
        elif KINDS.index(name) <= self.kind:
            self._complain(number, f"{name} is repeated or out of order")
        else:
            self.kind = KINDS.index(name)

    def _complain(self, number: int, text: str) -> None:
        self.problems.append(f"CHANGELOG.md:{number}: {text}")


def main() -> int:
    """Check the file and print what is wrong."""
    reader = Reader()
    lines = (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines()
    for number, line in enumerate(lines, start=1):
        reader.read(number, line)
    if not lines or lines[0] != "# Changelog":
        reader.problems.append("CHANGELOG.md:1: want the title `# Changelog`")
    if not reader.is_unreleased_seen:
        reader.problems.append("CHANGELOG.md: no Unreleased section")
    with (ROOT / "pyproject.toml").open("rb") as stream:
        text = tomllib.load(stream)["project"]["version"]
    version = tuple(int(part) for part in text.split("."))
    if reader.versions and version < reader.versions[0]:
        reader.problems.append(f"pyproject.toml: version {text} is below the last release")
    for problem in reader.problems:
        print(problem)
    print(f"CHANGELOG.md: {len(reader.versions)} releases, {len(reader.problems)} problems")
    return 1 if reader.problems else 0


if __name__ == "__main__":
    sys.exit(main())
