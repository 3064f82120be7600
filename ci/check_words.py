"""Check that counts of words (`ci/words.txt`) are as allowed: `ci/check_words.py [--write]`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import prose

ROOT = Path(__file__).resolve().parent.parent
WORDS, ALLOWED = ROOT / "ci/words.txt", ROOT / "ci/words-allowed.txt"
FOLDERS = ("kafkalog", "pyspark_kafkalog", "tests", "docs", "ci", "asv_bench", "examples")
SUFFIXES = {".py", ".pyx", ".pxd", ".pyi", ".md", ".toml"}
Matcher = Callable[..., re.Match[str] | None]
Rules = Mapping[str, tuple[Matcher, Matcher, list[list[str]]]]


def read_rules(lines: str) -> Rules:
    """Return by scope what matches any rule, what matches any first word, and the rules."""
    rules = {}
    split = [line.split(" -> ") for line in lines.splitlines() if line[:1] not in ("", "#")]
    for scope in {each[2] for each in split}:
        # Phrases go before single words.
        found = sorted((x for x in split if x[2] == scope), key=lambda x: " " not in x[0])
        flags = re.NOFLAG if scope == "names" else re.IGNORECASE
        begin = "|".join(re.split(r"[ /[]", each[0])[0] for each in found)
        every = "|".join(f"({each[0]})" for each in found).replace("/", "[./]")
        every = every.replace(" ", r"(?:[\s#>\"']|_(?=[\"']))+")
        begins = cache(re.compile(begin, flags).fullmatch)
        rules[scope] = re.compile(rf"(?:{every})(?!\w)", flags).match, begins, found
    return rules


def hits(rules: Rules, path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield (package, scope and pattern, line to print) of each word that a file must not have."""
    package = "/".join(path.split("/")[:-1][: 2 if path.startswith("kafkalog") else 1]) or "docs"
    for start, scopes, unit in prose.units(path, text):
        for scope in scopes.split():
            fits, begins, pairs = rules[scope]
            words = list(re.finditer(r"\w+", unit))
            for word in words[:1] if scope == "first-word" else words:
                found = begins(word[0]) and fits(unit, word.start())
                if found:
                    pattern, replacement, _ = pairs[(found.lastindex or 1) - 1]
                    line = text.count("\n", 0, start + word.start()) + 1
                    key = f"{package} -> {scope} -> {pattern}"
                    yield key, f"{path}:{line}: {found[0]!r}, write: {replacement}"


def problems(found: Mapping[str, list[str]], allowed: Mapping[str, int]) -> Iterator[str]:
    """Yield the words of which there are more than allowed, and counts that are too high."""
    for key in sorted(found.keys() | allowed.keys()):
        count, limit = len(found.get(key, [])), allowed.get(key, 0)
        if count > limit:
            yield from (*found[key], f"{key}: {count} found, {limit} allowed")
        elif count < limit:
            yield f"{key}: {count} found, lower the allowed count {limit}"


def long_subjects(root: Path, since: str, columns: str) -> list[str]:
    """Return the subjects of the commits after the one given that have too many columns."""
    command = ["git", "log", "--no-merges", "--format=%s", f"{since}..HEAD"]
    log = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    if log.returncode:
        print(f"SKIPPED: subjects of commits, no history since {since}: {log.stderr.strip()}")
    long = (each for each in log.stdout.splitlines() if len(each) > int(columns))
    return [f"over {columns} columns: {each}" for each in long]


def main() -> int:
    """Check all files and the subjects of new commits; with `--write` allow the counts of today."""
    rules = read_rules(WORDS.read_text())
    paths = [
        *ROOT.glob("*.md"),
        *ROOT.glob("*.toml"),
        *(each for name in FOLDERS for each in (ROOT / name).rglob("*.*")),
    ]
    found = defaultdict[str, list[str]](list)
    for path in sorted(paths):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in SUFFIXES and not re.search(r"^tests/golden/|/\.", name):
            # The changelog's table of renames has old names.
            unread = r"(?m)^\|.*" if name == "CHANGELOG.md" else r"\Z"
            for key, shown in hits(rules, name, re.sub(unread, "", path.read_text())):
                found[key].append(shown)
    allowed = (each.rpartition(" -> ") for each in ALLOWED.read_text().splitlines())
    wrong = list(problems(found, {key: int(count) for key, _, count in allowed}))
    for since, columns, _ in rules["subjects"][2]:
        wrong += long_subjects(ROOT, since, columns)
    print(*wrong, f"{sum(map(len, found.values()))} words, {len(wrong)} problems", sep="\n")
    if sys.argv[1:] == ["--write"]:
        ALLOWED.write_text("".join(f"{key} -> {len(found[key])}\n" for key in sorted(found)))
    return 1 if wrong and sys.argv[1:] != ["--write"] else 0


if __name__ == "__main__":
    sys.exit(main())
