"""The Python that README and pages print runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from tests.support.logs import manual_log, numbered

ROOT = Path(__file__).resolve().parents[2]


def _python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text("ascii"), re.DOTALL)


def _run_blocks(name: str, session: dict[str, object], root: str = "/") -> None:
    """
    Run what a page prints as a reader does who pastes it in order into one session.

    Disks that it names at the root are below `root`.
    """
    blocks = _python_blocks(name)
    assert blocks
    for block in blocks:
        block = block.replace('"/disk', f'"{root}disk')
        exec(compile(block, name, "exec"), session)


def test_readme_example_runs_and_prints_what_it_says(
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
    """What the heading promises."""
    (block,) = _python_blocks("README.md")
    lines = [line for line in block.splitlines() if line.strip()]
    assert 15 <= len(lines) <= 22


def test_quickstart_blocks_run_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And print what the page says."""
    monkeypatch.chdir(tmp_path)
    _run_blocks("docs/quickstart.md", {})
    assert [
        "1 b'o-1' b'paid'",
        "2 b'o-1' b'shipped'",
        "first record after new year: 1",
        "0 3",
    ] == capsys.readouterr().out.splitlines()


def test_clients_blocks_run_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A producer, a consumer and a transaction, as the page has them."""
    monkeypatch.chdir(tmp_path)
    _run_blocks("docs/clients.md", {})
    assert ["3 partitions", "read up to 100"] == capsys.readouterr().out.splitlines()
    with kafkalog.LogManager(["data"]) as manager, manager.consumer("billing") as consumer:
        committed = [consumer.committed(kafkalog.TopicPartition("orders", n)) for n in range(3)]
    assert sum(each.offset for each in committed if each is not None) == 100


def test_operations_blocks_run_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A manager of two disks, with the settings of a broker's file."""
    monkeypatch.chdir(tmp_path)
    Path("server.properties").write_text("log.dirs=/elsewhere\nlog.retention.hours=24\n", "ascii")
    session: dict[str, Any] = {}
    _run_blocks("docs/operations.md", session, f"{tmp_path}/")
    assert "is_online=True" in capsys.readouterr().out
    assert session["manager"].is_closed
    with kafkalog.LogManager([tmp_path / "disk1/logs", tmp_path / "disk2/logs"]) as manager:
        assert manager.topics() == {"orders": tuple(range(12))}
        assert [each.partition_count for each in manager.health().directories] == [6, 6]
        assert manager.log("orders", 3).log_end_offset == 1


@pytest.mark.parametrize(
    "page", ["compaction", "configuration", "convert", "fetching", "retention"]
)
def test_blocks_of_a_page_run_one_after_another(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the names of the package, and logs where they say that there are some."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "new").mkdir()
    for name in ("orders-0", "old/orders-0"):
        with manual_log(tmp_path / name) as log:
            log.append(numbered(0, 10))
    session: dict[str, object] = {name: getattr(kafkalog, name) for name in kafkalog.__all__}
    session["batches"] = (tmp_path / "orders-0" / f"{0:020}.log").read_bytes()
    _run_blocks(f"docs/{page}.md", session)


def test_columns_blocks_run_one_after_another(tmp_path: Path) -> None:
    """By themselves: the libraries of others that they import stay out of the other tests."""
    with manual_log(tmp_path / "orders-0") as log:
        log.append(numbered(0, 10))
    code = "\n".join(_python_blocks("docs/columns.md"))
    code += "\nassert (10, 10, 20, 1) == (len(table), len(frame), size, len(some))"
    code += "\nassert (2, b'v0') == (longest, first)\n"
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (0, "", "") == (result.returncode, result.stdout, result.stderr)
