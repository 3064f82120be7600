"""Check that the target of every link of the documentation exists: `python ci/check_docs.py`.

Checked in every Markdown file of the project (the golden data's own excepted): relative links to
files, and `#fragments` of Markdown targets against their headings. Links to the network are not
followed: this must work offline.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(<?([^)>\s]+)>?(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^\s*(```|~~~)")


def documents() -> list[Path]:
    """Return the Markdown files that the repository holds or is about to hold."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    try:
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
        names = listed.stdout.splitlines()
    except (FileNotFoundError, subprocess.CalledProcessError):
        # An unpacked source archive has no repository around it.
        found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
        names = [str(path.relative_to(ROOT)) for path in found]
    return [ROOT / name for name in sorted(names) if not name.startswith("tests/golden/")]


def prose(path: Path) -> list[tuple[int, str]]:
    """Return (number, line) of the lines outside fenced blocks."""
    kept, is_fenced = [], False
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if FENCE.match(line):
            is_fenced = not is_fenced
        elif not is_fenced:
            kept.append((number, line))
    return kept


def anchors(path: Path) -> set[str]:
    """Return the fragments that the headings of a Markdown file make."""
    found: set[str] = set()
    for _, line in prose(path):
        if line.startswith("#"):
            title = re.sub(r"[`*]", "", line.lstrip("#").strip()).lower()
            found.add(re.sub(r"[^\w\- ]", "", title).replace(" ", "-"))
    return found


def problems(path: Path) -> list[str]:
    """Return one line for each link of this document that leads nowhere."""
    found = []
    for number, line in prose(path):
        for target in LINK.findall(line):
            if "://" in target or target.startswith("mailto:"):
                continue
            name, _, fragment = target.partition("#")
            file = (path.parent / name).resolve() if name else path
            place = f"{path.relative_to(ROOT)}:{number}"
            if not file.exists():
                found.append(f"{place}: {target} does not exist")
            elif fragment and file.suffix == ".md" and fragment not in anchors(file):
                found.append(f"{place}: {target} has no such heading")
    return found


def main() -> int:
    """Check every document and print what is wrong."""
    paths = documents()
    found = [problem for path in paths for problem in problems(path)]
    for problem in found:
        print(problem)
    print(f"{len(paths)} documents, {len(found)} dead links")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
