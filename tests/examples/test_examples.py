"""Programs under `examples`: each runs to its end, with the stated results."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import kafkalog

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(name="run")
def fixture_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> object:
    """Return what runs an example in a directory, and returns what it printed."""
    # Processes that an example starts have the package too, be it installed or not.
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def run(name: str) -> list[str]:
        main = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))["main"]
        assert main([str(tmp_path / "data")]) == 0
        return capsys.readouterr().out.splitlines()

    return run


def numbers(line: str) -> list[int]:
    """Return the numbers in a line."""
    return [int(each) for each in re.findall(r"\d+", line)]


def test_change_subscription_restart_reads_about_one_record_per_row(
    run: object, tmp_path: Path
) -> None:
    """3,000 changes of 40 products; the compacted log has each once, tombstones too."""
    assert callable(run)
    first, second, verdict = run("change_subscription")
    changes, rows = numbers(first)
    records, again = numbers(second)
    assert rows == again <= records <= 40 < 2900 < changes
    assert verdict == "the cache is the table"
    with kafkalog.open_log(tmp_path / "data" / "products-0", read_only=True) as log:
        assert (records, changes) == (len(list(log.records())), log.log_end_offset)


def test_event_sourcing_restart_reads_snapshot_and_later_events(run: object) -> None:
    """A record for each account, and fewer events than between two snapshots."""
    assert callable(run)
    _first, second, verdict = run("event_sourcing")
    snapshots, events = numbers(second)
    assert (snapshots, verdict) == (13, "the balances are those of a full replay")
    assert 0 < events < 40


def test_journaling_killed_process_is_replaced_without_double_counts(run: object) -> None:
    """SIGKILL during the requests; each request counts once, with or without an answer."""
    assert callable(run)
    first, killed, second, total, verdict = run("journaling")
    assert first == "the first process is ready 0"
    (answered,) = numbers(killed)
    (found,) = numbers(second)
    totals = [sum(each % 9 + 1 for each in range(1, last + 1)) for last in (answered, answered + 1)]
    assert 40 <= answered
    assert found in totals
    assert [120, 594] == numbers(total)
    assert verdict == "each was counted once"
