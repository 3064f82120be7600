"""Lists of files in `docs/contributing/`: they are complete and up to date."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "contributing"
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| [^|]+ \|$", re.MULTILINE)
# Files and functions of tests; `...` ends the beginning of a name, and `*` matches any text.
TEST_FILE = re.compile(r"`(?:tests/)?((?:\w+/)*test_[\w*]+\.py)`")
TEST_FUNCTION = re.compile(r"`((?:test|by)_\w+?)(\.\.\.)?`")
TARGET_ROW = re.compile(r"^\| ((?:`[\w-]+`(?:, )?)+) \| [^|]+ \|$", re.MULTILINE)
# Page, a pattern of source text, and the folder whose files with that text the page lists.
USES = [
    ("add-a-codec", r'"zstd"|\bCODEC_ZSTD\b|\bCodec\.ZSTD\b|\bZSTD = 4\b', "kafkalog"),
    ("add-a-codec", r"\bcompression_zstd_level\b", "kafkalog"),
    ("change-an-index-entry", r"\bOFFSET_(INDEX_)?ENTRY(_\w+)?\b", "kafkalog"),
    ("change-an-index-entry", r'Struct\(">ii"\)', "kafkalog"),
    ("add-a-setting", r'"max_compaction_lag_ms"', "kafkalog"),
    ("add-a-setting", r'"max\.compaction\.lag\.ms"', "kafkalog"),
    ("add-a-setting", r'"log\.cleaner\.max\.compaction\.lag\.ms"', "kafkalog"),
    ("add-a-cli-verb", r"\bcli\.handover\b", "kafkalog"),
    ("add-a-spark-option", r'"maxRecordsPerPartition"', "kafkalog"),
    ("add-a-spark-option", r"\bmax_records_per_partition\b", "kafkalog"),
]


def listed(page: str) -> dict[str, list[str]]:
    """Return the files in the table of a page, each with the texts that it must contain."""
    found: dict[str, list[str]] = {}
    for name, text in ROW.findall((PAGES / f"{page}.md").read_text("ascii")):
        found.setdefault(name, []).append(text)
    return found


def source_of(path: Path) -> str:
    """Return the text of a source file; of Python without docstrings and comments."""
    if path.suffix != ".py":
        return re.sub(r"#.*", "", path.read_text("utf-8"))
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_docstring(body[0]):
            body[0] = ast.Pass()
    return ast.unparse(tree).replace("'", '"')


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def files_with(pattern: str, folder: str) -> Iterator[str]:
    """Yield the source files below a folder whose code has the pattern."""
    expression = re.compile(pattern)
    paths = sorted((ROOT / folder).rglob("*.p*"))
    for path in (path for path in paths if path.suffix in {".py", ".pyx", ".pxd"}):
        # Few files have the text at all; only those are parsed.
        if expression.search(path.read_text("utf-8")) and expression.search(source_of(path)):
            yield path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", sorted({page for page, _, _ in USES}))
def test_contributing_page_listed_file_has_the_named_text(page: str) -> None:
    """A file that was moved, or code that was renamed, makes the page fail."""
    files = listed(page)
    assert len(files) >= 4
    for name, texts in files.items():
        content = (ROOT / name).read_text("utf-8")
        for text in texts:
            assert text in content, f"{page}: {name} does not contain {text!r}"


@pytest.mark.parametrize(("page", "pattern", "folder"), USES)
def test_contributing_page_file_with_the_example_is_listed(
    page: str, pattern: str, folder: str
) -> None:
    """A new file that has to change with the others makes the page fail."""
    assert set(files_with(pattern, folder)) <= listed(page).keys()


def test_contributing_pages_are_linked_from_the_index() -> None:
    """Each page of the folder is in the table of `docs/index.md`."""
    index = (ROOT / "docs" / "index.md").read_text("ascii")
    for path in PAGES.glob("*.md"):
        assert f"](contributing/{path.name})" in index


def page_texts() -> str:
    """Return the text of all pages of the folder."""
    return "\n".join(path.read_text("ascii") for path in sorted(PAGES.glob("*.md")))


def test_contributing_pages_test_files_exist() -> None:
    """A file is named with its folder below `tests`, or alone."""
    named = set(TEST_FILE.findall(page_texts()))
    assert len(named) > 20
    absent = {name for name in named if not any((ROOT / "tests").rglob(name))}
    assert set() == absent


def test_contributing_pages_test_functions_exist() -> None:
    """A renamed test makes the page fail."""
    named = set(TEST_FUNCTION.findall(page_texts()))
    assert len(named) > 10
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    defined = set(re.findall(r"^def (\w+)\(", sources, re.MULTILINE))
    absent = {
        name
        for name, begins in named
        if not any(each == name or (begins and each.startswith(name)) for each in defined)
    }
    assert set() == absent


def test_contributing_fuzzing_page_lists_all_targets() -> None:
    """Each target is in one row of the table, and the table has no other."""
    rows = TARGET_ROW.findall((PAGES / "fuzzing.md").read_text("ascii"))
    assert sorted(TARGETS) == sorted(name for row in rows for name in re.findall(r"[\w-]+", row))
