"""The page and the picture of the soak, drawn from results that were written and read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.soak import results
from tests.soak.conductor import Run, judge_samples
from tests.soak.page import draw, page
from tests.soak.results import Kept, keep
from tests.soak.stage import Outcome


def kept_run(folder: Path, monkeypatch: pytest.MonkeyPatch, *, leak: int) -> Kept:
    """Write the results of an invented run to a folder, and read them."""
    monkeypatch.setattr(results, "RESULTS", folder / "results.json")
    monkeypatch.setattr(results, "SAMPLES", folder / "samples.jsonl")
    run = Run(7, 3600.0, True, counts={"records acknowledged": 12345})
    for number in range(360):
        use = {"rss": (50 << 20) + leak * number, "descriptors": 20, "mappings": 9, "threads": 4}
        service = {"life": 1 + number // 200, **use}
        volume = {"disk": 1 << 20, "files": 9}
        run.samples.append({"at": 10.0 * number, "ingest": service, "volume of ingest": volume})
    for at, free in ((60.0, 0.0), (120.0, 4096.0)):
        outcome = Outcome("full disk", at)
        outcome.answer("request: 507", 0.25)
        outcome.show("kafkalog_disk_free_bytes", free, is_shown=True)
        run.outcomes.append(outcome)
    judge_samples(run)
    return keep(run, {"CPU": "some"}, "0123456789")


def test_page_has_faults_and_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run without a problem; the smallest and the largest figure of a metric."""
    kept = kept_run(tmp_path, monkeypatch, leak=0)
    text = "".join(page(kept))
    assert "No judgements failed." in text
    assert (
        "| full disk | 2 | 2 x request: 507 | 0.2 s | `kafkalog_disk_free_bytes` 0 to 4,096 |"
        in text
    )
    assert "| ingest: rss | 50.0 MiB | 50.0 MiB | 50.0 MiB, 50.0 MiB | yes |" in text
    assert "| records acknowledged | 12,345 |" in text
    assert "| day, commit | " in text
    assert "`0123456789`" in text


def test_page_of_a_leaking_run_has_the_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not drawn as a success."""
    text = "".join(page(kept_run(tmp_path, monkeypatch, leak=64 << 10)))
    assert "1 judgement failed." in text
    assert "- rss of ingest is not flat: median rose" in text
    assert "| no |" in text


def test_picture_has_all_panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of two lives, and a volume."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install it")
    draw(kept_run(tmp_path, monkeypatch, leak=0), tmp_path / "picture.svg")
    text = (tmp_path / "picture.svg").read_text()
    for title in ("Resident memory", "Mappings", "Files", "volume of ingest"):
        assert title in text
