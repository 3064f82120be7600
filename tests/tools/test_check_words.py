"""Tests of the check of words: each kind of text is found, and wrong counts are refused."""

from __future__ import annotations

import importlib.util
import subprocess
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

CI = Path(__file__).resolve().parents[2] / "ci"
SINCE = "1" * 40
RULES = f"""
# a comment
{SINCE} -> 20 -> subjects
grue -> monster -> every
grue cave -> den -> every
meanwhile[.;] -> during -> every
Wumpus -> a noun -> first-word
is frob -> must be -> messages
OldName -> NewName -> names
log/frob -> log/nice -> names
is_hunt -> is_search -> identifiers
"""


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Load the check as `ci/test.py` runs it."""
    monkeypatch.syspath_prepend(str(CI))
    spec = importlib.util.spec_from_file_location("_ci_check_words", CI / "check_words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("suffix", ["py", "pyx", "pxd", "pyi"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"""A grue."""\n', ["every -> grue"]),
        ("x = 1  # a Grue\n", ["every -> grue"]),
        ('raise ValueError(\n    f"a {grue} and"\n    f" a grue"\n)\n', ["every -> grue"]),
        ('x = "a grue"\n', []),
        ('x = "this is a grue"\n', ["every -> grue"]),
        (
            'f(\n    "this is a "  # ok\n    f"grue, as it "\n    "is frob"\n)\n',
            ["every -> grue", "messages -> is frob"],
        ),
        ('x = "a b c"; y = "a grue"\n', []),
        ("grue = 1\n", []),
        ('f(is_hunt="is_hunt")  # is_hunt\n', ["identifiers -> is_hunt"]),
        ('"""A `grue` and grueling."""\n', []),
        ('"""A\n\n    grue\n    cave."""\n', ["every -> grue cave"]),
        ("# A grue\n# cave.\n", ["every -> grue cave"]),
        ("# Meanwhile. And meanwhile,\n", ["every -> meanwhile[.;]"]),
        ('def f(x):  # noqa\n    r"""Wumpus."""\n', ["first-word -> Wumpus"]),
        ("# Wumpus\n# wumpus\n", ["first-word -> Wumpus"]),
        ("# The wumpus\n", []),
        ('f("""Wumpus grue.""")\n', []),
        ('raise ValueError("x is")\nprint(" frob")\n', []),
        (
            '    raise ValueError(\n        "x is"\n        f" frob"\n    )\n',
            ["messages -> is frob"],
        ),
        ('x = typer.Option("--x", help="X is frob.")\n', ["messages -> is frob"]),
        ('logger.info("%s is frob", x)\n', ["messages -> is frob"]),
        ('return SomeError("it is frob")\n', ["messages -> is frob"]),
        ('print("it is frob")\n', []),
        ('"""It is frob."""\n', []),
        ("class OldName:\n", ["names -> OldName"]),
        ("f(OldName=1)\n", ["names -> OldName"]),
        ('"""As `OldName.x`."""\n', ["names -> OldName"]),
        ('"""As OldName."""\n', []),
        ("_OldName = oldname\n", []),
        ("from kafkalog.log.frob import x\n", ["names -> log/frob"]),
    ],
)
def test_hits_python_and_cython_scope_is_read(
    check: ModuleType, suffix: str, text: str, expected: list[str]
) -> None:
    """Each scope reads its kinds of text and no others."""
    hits = check.hits(check.read_rules(RULES), f"kafkalog/log/imagined.{suffix}", text)
    assert [f"kafkalog/log -> {each}" for each in expected] == [key for key, _ in hits]


def test_hits_show_line_and_replacement(check: ModuleType) -> None:
    """The line is that of the word, not that of the comment."""
    hits = check.hits(check.read_rules(RULES), "ci/imagined.py", "x = 1\n# A\n# grue.\n")
    assert [("ci -> every -> grue", "ci/imagined.py:3: 'grue', write: monster")] == list(hits)


def test_hits_page_is_read_except_for_code(check: ModuleType) -> None:
    """In a page all is prose, but for text in backticks."""
    text = "A grue\ncave, a `grue`, an OldName.\n\n```python\nOldName()\n```\n"
    hits = check.hits(check.read_rules(RULES), "docs/format/imagined.md", text)
    assert ["docs -> every -> grue cave", "docs -> names -> OldName"] == sorted(
        key for key, _ in hits
    )


@pytest.mark.parametrize(
    ("path", "package"),
    [
        ("README.md", "docs"),
        ("kafkalog/imagined.py", "kafkalog"),
        ("kafkalog/log/scan/imagined.py", "kafkalog/log"),
        ("tests/unit/log/imagined.py", "tests"),
    ],
)
def test_hits_count_for_a_package(check: ModuleType, path: str, package: str) -> None:
    """A package is a directory of the top, or one directly below `kafkalog`."""
    hits = list(check.hits(check.read_rules(RULES), path, "# grue\n"))
    assert [f"{package} -> every -> grue"] == [key for key, _ in hits]


def test_hits_command_line_docstring_is_a_message(check: ModuleType) -> None:
    """Docstrings of the command line are its help."""
    text = '"""It is frob."""\n# It is frob.\n'
    hits = check.hits(check.read_rules(RULES), "kafkalog/cli/imagined.py", text)
    assert ["kafkalog/cli -> messages -> is frob"] == [key for key, _ in hits]


def test_hits_module_name_is_a_name(check: ModuleType) -> None:
    """A file with an old name is found where nothing imports it."""
    hits = check.hits(check.read_rules(RULES), "kafkalog/log/frob.py", "")
    assert ["kafkalog/log -> names -> log/frob"] == [key for key, _ in hits]


def test_problems_counts_must_be_exact(check: ModuleType) -> None:
    """A count that rises shows each word, a count that falls must be written down."""
    found = {"same": ["a"], "more": ["b", "c"], "new": ["d"], "less": ["e"]}
    allowed = {"same": 1, "more": 1, "less": 2, "gone": 1}
    assert [
        "gone: 0 found, lower the allowed count 1",
        "less: 1 found, lower the allowed count 2",
        *["b", "c", "more: 2 found, 1 allowed"],
        *["d", "new: 1 found, 0 allowed"],
    ] == list(check.problems(found, allowed))


def test_long_subjects_are_found_and_missing_history_is_skipped(
    check: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only commits after the given one count; without history the check reports that it skips."""
    assert [] == check.long_subjects(tmp_path, SINCE, "20")
    assert capsys.readouterr().out.startswith("SKIPPED")

    def git(*words: str) -> str:
        options = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
        done = subprocess.run(
            ["git", *options, *words], cwd=tmp_path, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "--quiet")
    for subject in ("An old subject that is long", "A short subject", "A new subject that is long"):
        git("commit", "--quiet", "--allow-empty", "-m", subject)
    problems = check.long_subjects(tmp_path, git("rev-parse", "HEAD~2"), "20")
    assert ["over 20 columns: A new subject that is long"] == problems
    assert "" == capsys.readouterr().out


def test_rules_of_the_project_are_unique_and_complete(check: ModuleType) -> None:
    """Each line has a pattern, a replacement and a scope, and no pattern is twice in a scope."""
    rules = check.read_rules(check.WORDS.read_text())
    assert {"every", "first-word", "identifiers", "messages", "names", "subjects"} == rules.keys()
    for _, _, lines in rules.values():
        assert all(len(each) == 3 and all(each) for each in lines)
        assert [] == [key for key, count in Counter(each[0] for each in lines).items() if count > 1]
