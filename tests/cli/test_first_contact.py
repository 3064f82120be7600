"""First steps of a new user: versions, help, failures as JSON, an unbuilt source tree."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import kafkalog
from kafkalog import LogManager, Record
from kafkalog.cli.app import app
from kafkalog.cli.stat.keys import key_text

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """Run the command; return its status and its two outputs."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.stdout, result.stderr


def test_version_equals_the_installed_package() -> None:
    """USE-10: of the module, and of the command."""
    version = importlib.metadata.version("kafkalog")

    assert kafkalog.__version__ == version
    assert run("--version") == (0, f"kafkalog {version}\n", "")


@pytest.mark.parametrize("verb", [[], ["dump"], ["stat"], ["spark"]])
def test_short_help_equals_the_long_one(verb: list[str]) -> None:
    """USE-10: `-h` of the command and of each verb."""
    assert run(*verb, "-h") == run(*verb, "--help")
    assert run(*verb, "-h")[0] == 0


def test_dir_has_only_the_public_names() -> None:
    """USE-10: it has no import of the module."""
    names = [each for each in dir(kafkalog) if not each.startswith("__")]

    assert names == sorted(kafkalog.__all__)


@pytest.mark.parametrize("verb", ["plan", "stat", "compact", "doctor", "dump"])
def test_failure_with_json_is_an_object_on_standard_output(tmp_path: Path, verb: str) -> None:
    """USE-10: the object has the class and the text of the error, which standard error has too."""
    status, output, error = run(verb, "--json", tmp_path / "nowhere")

    found = json.loads(output)
    assert status == 3
    assert issubclass(getattr(kafkalog, found["error"]), kafkalog.KafkaLogError)
    assert str(tmp_path / "nowhere") in found["message"]
    assert error == f"kafkalog: {found['message']}\n"


def test_convert_failure_with_json_is_one_object(tmp_path: Path) -> None:
    """USE-10: it has the finished work, here none, and the reason."""
    status, output, _ = run("convert", "--json", tmp_path / "nowhere", tmp_path / "target")

    found = json.loads(output)
    assert status == 3
    assert found["logs"] == []
    assert found["error"] == "NotALogError"


def test_keys_are_shown_as_text_of_a_bounded_width() -> None:
    """USE-10: UTF-8 unchanged; other bytes and control characters are escaped."""
    assert key_text("\u043a\u043b\u044e\u0447".encode()) == "\u043a\u043b\u044e\u0447"
    assert key_text(b"a\\\xff\x1b\n") == "a\\\\\\xff\\x1b\\x0a"
    assert key_text("\u202e".encode()) == "\\u202e"
    assert key_text(b"") == "(empty)"
    for key in (b"x" * 49, b"\xff" * 13, "\u0436".encode() * 4_000, "\U0001f600".encode() * 49):
        shown, _, behind = key_text(key).partition("... (")
        assert 44 <= len(shown) <= 48
        assert behind.startswith(f"{len(key):,} bytes, sha256:")
    assert key_text("\u0436".encode() * 48) == "\u0436" * 48


def test_dump_garbage_index_has_one_line_for_adjacent_entries(tmp_path: Path) -> None:
    """USE-10: the line has their number, and the damage of the first."""
    with kafkalog.open_log(tmp_path / "t-0") as log:
        log.append([Record(value=b"x")])
    path = next((tmp_path / "t-0").glob("*.timeindex"))
    path.write_bytes(b"\x7f" * 12 * 1_000)

    status, output, _ = run("dump", path)

    damaged = [line for line in output.splitlines() if line.startswith("DAMAGE")]
    assert status == 1
    assert len(damaged) == 1
    assert "size: 11988 reason: INDEX_ENTRY (999 entries, the first: " in damaged[0]


def test_producer_key_of_another_type_is_named_in_the_error(tmp_path: Path) -> None:
    """USE-8: like the value."""
    with LogManager(tmp_path) as manager:
        manager.create_topic("orders", 2)
        with manager.producer() as producer:
            with pytest.raises(TypeError, match=r"^key must be bytes or None, got str$"):
                producer.send("orders", b"v", key="k")  # type: ignore[arg-type]
            producer.send("orders", b"v", key=b"k")
            producer.flush()
        assert [r.key for n in (0, 1) for r in manager.log("orders", n).records()] == [b"k"]


def test_source_tree_without_compiled_modules_raises_with_the_fix(tmp_path: Path) -> None:
    """USE-9: Python in a checkout finds the folder before an installed package."""
    skipped = shutil.ignore_patterns("*.so", "*.c", "__pycache__")
    shutil.copytree(ROOT / "kafkalog", tmp_path / "kafkalog", ignore=skipped)
    done = subprocess.run(
        [sys.executable, "-c", "import kafkalog; kafkalog.Record"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: kafkalog in {tmp_path / 'kafkalog'} is a source tree without compiled"
        " modules: start Python in another folder to use the installed package, or compile here"
        " with `python setup.py build_ext --inplace`"
    )
