"""Tests of the harness of the proof: reports of parts are stored, bounded, and rendered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.proof import harness
from tests.proof.__main__ import PAGE
from tests.proof.harness import Part, Proof, parse_options, perform
from tests.proof.page import page
from tests.proof.parts import PARTS
from tests.proof.results import RESULTS, read_results, result_of, write_results


def a_proof(folder: Path) -> Proof:
    """Return a run of a minute that keeps its evidence in a folder."""
    return Proof("example", 7, 60, folder, evidence_root=folder / "evidence")


def an_example(module: str, missing: str = "") -> Part:
    """Return a part without a separate module."""
    return Part("example", "An example", "It does nothing.", module, (lambda: missing,))


def test_page_agrees_with_the_stored_results() -> None:
    """docs/proof.md is rendered from them: `python3 ci/proof.py --render` after a change."""
    assert PAGE.read_text("utf-8") == page(PARTS, read_results(RESULTS))


def test_parts_have_unique_names_and_existing_modules() -> None:
    """Every registered part can be run."""
    assert len(PARTS) == len({part.name for part in PARTS})
    for part in PARTS:
        assert (harness.ROOT / f"{part.module.replace('.', '/')}.py").exists(), part.name


def test_broken_promise_keeps_files_without_following_links(tmp_path: Path) -> None:
    """Evidence holds the bytes of files; a link, a FIFO and a hole add nothing."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "file").write_bytes(b"bytes")
    (data / "link").symlink_to("/")
    os.mkfifo(data / "fifo")
    proof = a_proof(tmp_path)
    kept = Path(proof.broken("lost", "offset 7 is gone\nmore", [data, tmp_path / "absent"]))
    assert "lost\n\noffset 7 is gone\nmore\n" == (kept / "what.txt").read_text()
    assert b"bytes" == (kept / "0-data" / "file").read_bytes()
    assert ["file"] == [entry.name for entry in (kept / "0-data").iterdir()]
    assert "not copied" in (kept / "listing.txt").read_text()
    assert {"broken: lost": 1} == dict(proof.counts)


def test_evidence_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of any size and any number of findings leave a bounded amount of evidence."""
    monkeypatch.setattr(harness, "MOST_BYTES", 1000)
    monkeypatch.setattr(harness, "MOST_PIECES", 2)
    big = tmp_path / "big"
    with big.open("wb") as file:
        file.truncate(1 << 40)
    proof = a_proof(tmp_path)
    kept = [proof.broken("grown", "by holes", [big]) for _ in range(3)]
    assert 1000 == (Path(kept[0]) / "0-big").stat().st_size
    assert "" == kept[2]
    assert 3 == len(proof.found)


def test_part_that_raises_is_broken_and_part_without_its_needs_is_skipped(tmp_path: Path) -> None:
    """An error of a part is never a silent success, and a missing need never a failure."""
    proof = a_proof(tmp_path)
    assert "" == perform(an_example("tests.proof.no_such_module"), proof)
    assert ["the part ended in an error"] == [each.title for each in proof.found]
    assert "no device" == perform(an_example("tests.proof.no_such_module", "no device"), proof)
    assert 1 == len(proof.found)


def test_results_round_trip(tmp_path: Path) -> None:
    """Results are stored unchanged, and the page shows counts, notes and broken promises."""
    proof = a_proof(tmp_path)
    proof.count("cuts", 1234)
    proof.note("a control ran beside it")
    proof.broken("lost", "offset 7")
    result = result_of(proof, {"CPU": "one"}, "", 1.26)
    write_results(tmp_path / "results.json", {"example": result})
    assert {"example": result} == read_results(tmp_path / "results.json")
    text = page([an_example("x")], {"example": result})
    assert "| cuts | 1,234 |" in text
    assert "- a control ran beside it" in text
    assert "- lost: offset 7" in text
    assert "| [example](#an-example) | not run | | | | |" in page([an_example("x")], {})


def test_page_sums_the_changed_inputs_of_all_parts(tmp_path: Path) -> None:
    """Counters that a part names as inputs are summed; a missing counter is left out."""
    parts, results = [], {}
    for name, number in (("one", 1_000), ("two", 234)):
        parts.append(Part(name, name, "", "x", inputs=("inputs", "others")))
        proof = a_proof(tmp_path)
        proof.count("inputs", number)
        results[name] = result_of(proof, {}, "", 1)
    assert "Mutated inputs in all: **1,234** (1,000 inputs and 234 inputs)." in page(parts, results)
    assert "Mutated inputs" not in page(parts, {})


def test_options_of_the_command_line_are_pairs() -> None:
    """`--option NAME=VALUE` reaches a part as a pair."""
    assert {"only": "xfs", "flag": ""} == parse_options(["only=xfs", "flag"])
