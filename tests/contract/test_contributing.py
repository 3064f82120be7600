"""Lists of files in `docs/contributing/`: they are complete and up to date."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "contributing"
ROW = re.compile(r"^\| `([^`]+)` \| `([^`]+)` \| [^|]+ \|$", re.MULTILINE)
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
