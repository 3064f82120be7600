"""Python code of README and pages: it runs as printed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kafkalog

ROOT = Path(__file__).resolve().parents[2]


def _python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("ascii"), re.DOTALL)


def _run_blocks(name: str, session: dict[str, object]) -> None:
    """Run the blocks of a page in order in one session, like pasted code."""
    blocks = _python_blocks(name)
    assert blocks
    for block in blocks:
        exec(compile(block, name, "exec"), session)


def test_readme_example_prints_the_stated_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It appends three records, reads the last two, and finds one by its time."""
    monkeypatch.chdir(tmp_path)
    _run_blocks("README.md", {})
    assert [
        "on the disk up to offset 3",
        "1 b'N24211' b'LGA to IAH'",
        "2 b'N619AA' b'JFK to MIA'",
        "first flight after 07:36:40 UTC is at offset 1",
    ] == capsys.readouterr().out.splitlines()
    with kafkalog.open_log("flights-0", read_only=True) as log:
        assert log.log_end_offset == 3


def test_readme_example_has_about_twenty_lines() -> None:
    """As its heading promises."""
    (block,) = _python_blocks("README.md")
    lines = [line for line in block.splitlines() if line.strip()]
    assert 15 <= len(lines) <= 22


def test_quickstart_blocks_in_order_print_the_stated_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one session."""
    monkeypatch.chdir(tmp_path)
    _run_blocks("docs/quickstart.md", {})
    assert [
        "1 b'o-1' b'paid'",
        "2 b'o-1' b'shipped'",
        "first record after new year: 1",
        "0 3",
    ] == capsys.readouterr().out.splitlines()


def test_asyncio_blocks_in_order_print_the_stated_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program, and functions that it could call."""
    monkeypatch.chdir(tmp_path)
    session: dict[str, Any] = {}
    _run_blocks("docs/asyncio.md", session)
    assert ["100 records on the disk", "read up to 101"] == capsys.readouterr().out.splitlines()

    async def use() -> list[object]:
        async with session["aio"].open_manager(["data"]) as manager:
            producer = manager.producer(buffer_memory=1 << 20)
            found = [session["has_space"](producer, size) for size in (1 << 20, 2 << 20)]
            return [*found, await session["send_within"](producer, 60)]

    assert [True, False, "1 ranges, rows without an offset: []"] == asyncio.run(use())


def test_clients_blocks_in_order_print_the_stated_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A producer, a consumer and a transaction."""
    monkeypatch.chdir(tmp_path)
    _run_blocks("docs/clients.md", {})
    expected = ["3 partitions", "read up to 100", "1000 records on the disk"]
    expected += ["2 records of a request", "1 records of a request"]
    expected += ["2 records, duplicate: False", "2 records, duplicate: True"]
    assert expected == capsys.readouterr().out.splitlines()
    with kafkalog.LogManager(["data"]) as manager, manager.consumer("billing") as consumer:
        committed = [consumer.committed(kafkalog.TopicPartition("orders", n)) for n in range(3)]
    assert sum(each.offset for each in committed if each is not None) == 100


def test_operations_blocks_in_order_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A manager of two disks."""
    monkeypatch.chdir(tmp_path)
    session: dict[str, Any] = {}
    _run_blocks("docs/operations.md", session)
    assert "is_online=True" in capsys.readouterr().out
    assert session["manager"].is_closed
    with kafkalog.LogManager([tmp_path / "disk1/logs", tmp_path / "disk2/logs"]) as manager:
        assert manager.topics() == {"orders": tuple(range(12))}
        assert [each.partition_count for each in manager.health().directories] == [6, 6]
        assert manager.log("orders", 3).log_end_offset == 1


# Libraries of an extra that a page uses.
LIBRARIES = {"metrics": ("prometheus_client", "opentelemetry.metrics")}

# Page, and a condition in Python that is true after its blocks.
PAGES = {
    "asyncio": "True",
    "clients": "True",
    "columns": "(len(table), len(frame), size, len(some), longest, first)"
    " == (10, 10, 20, 1, 2, b'v0')",
    "command-line": "(record.value, is_match) == (b'refused', True)",
    "compaction": "[each.key for each in survey.biggest_by_records] == [b'tea']",
    "configuration": "manager.is_closed",
    "convert": "(len(finished), made.report.records_converted) == (1, 10)",
    "fetching": "values[0] == b'v0'",
    "following": "len(found) == 2",
    "followers": "reader.is_closed",
    "metrics": "b'kafkalog_log_end_offset{partition=' in text",
    "operations": "manager.is_closed",
    "quickstart": "True",
    "retention": "deletions == ()",
    # pytest runs its tests in tests/unit/testing.
    "testing": "True",
}


@pytest.mark.parametrize("page", PAGES)
def test_page_blocks_in_an_empty_folder_run(page: str, tmp_path: Path) -> None:
    """USE-5: in a separate process without imports, where each warning is an error."""
    for name in LIBRARIES.get(page, ()):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install kafkalog[metrics]")
    code = "\n".join(_python_blocks(f"docs/{page}.md"))
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\nassert {PAGES[page]}\n"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (0, "") == (result.returncode, result.stderr)


def test_pages_with_python_are_in_the_list() -> None:
    """The tests of Spark run the pages about Spark."""
    pages = {path.stem for path in (ROOT / "docs").glob("*.md") if "```python" in path.read_text()}
    assert {page for page in pages if not page.startswith("spark")} == set(PAGES)
