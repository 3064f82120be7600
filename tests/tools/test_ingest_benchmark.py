"""Tests of the comparison of ingestion: counted syncs, results against the best peer, engines."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from asv_bench.peers import ingest, ingest_http, ingest_process, sync_calls
from asv_bench.peers.ingest_engines import ENGINES, LINGER
from asv_bench.peers.ingest_process import RECORDS, Round, make_requests
from asv_bench.peers.line_process import LineProcess

SYNCS = """
import mmap, os
from asv_bench.peers.sync_calls import sync_calls
file = os.open("file", os.O_RDWR | os.O_CREAT)
os.pwrite(file, b"1" * 4096, 0)
counts = [sync_calls()]
os.fsync(file); counts.append(sync_calls())
os.fdatasync(file); counts.append(sync_calls())
with mmap.mmap(file, 4096) as mapped:
    mapped.flush()
counts.append(sync_calls())
synced = os.open("file", os.O_RDWR | os.O_DSYNC)
os.pwrite(synced, b"2", 0); counts.append(sync_calls())
os.write(synced, b"3"); counts.append(sync_calls())
os.pwritev(synced, [b"4"], 2); counts.append(sync_calls())
os.writev(synced, [b"5"]); counts.append(sync_calls())
os.close(synced)
assert os.open("file", os.O_RDWR) == synced
os.pwrite(synced, b"6", 0); counts.append(sync_calls())
print(*(count - counts[0] for count in counts))
"""


def test_preloaded_library_counts_each_kind_of_sync(tmp_path: Path) -> None:
    """A descriptor that is used again for plain writes counts no more."""
    environment = sync_calls.preloaded(sync_calls.build(tmp_path))
    environment["PYTHONPATH"] = str(ingest.ROOT)
    ended = subprocess.run(
        [sys.executable, "-c", SYNCS],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "0 1 2 3 4 5 6 7 7" == ended.stdout.strip()


@pytest.mark.parametrize("name", ingest.engines()[0])
def test_engine_stores_groups_with_at_least_one_sync(name: str, tmp_path: Path) -> None:
    """In a separate process, as it is measured; each request has an answer."""
    environment = sync_calls.preloaded(sync_calls.build(tmp_path))
    environment["PYTHONPATH"] = str(ingest.ROOT)
    module = "asv_bench.peers.ingest_process"
    command = [sys.executable, "-m", module, name, "3", str(tmp_path / "store-0")]
    with LineProcess(command, environment=environment) as process:
        found = Round(*process.ask("50"))
    assert found.requests >= ingest_process.CLIENTS
    assert 0 < found.p50_us <= found.p99_us <= found.elapsed_us
    assert found.syncs >= found.groups > 0


@pytest.mark.parametrize("name", ingest.engines()[0])
def test_engine_returns_a_place_for_each_record(name: str, tmp_path: Path) -> None:
    """Ours as ranges, those of peers one by one."""
    engine = ENGINES[name](tmp_path / "store-0", 3)
    requests = make_requests()[:4]
    try:
        places = [engine.store(requests[:1]), engine.store(requests[1:])]
    finally:
        engine.close()
    assert [1, 3] == [len(each) for each in places]
    first = places[0][0]
    count = sum(each[2] for each in first) if name.startswith("kafkalog") else len(first)
    assert count == RECORDS


def test_version_without_a_setting_leaves_its_engine_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named, in capitals."""
    monkeypatch.setattr(
        ingest, "properties_of", lambda name: {"no.such": name} if "," in name else {}
    )
    names, notes = ingest.engines()
    assert {"kafkalog", "RocksDB", "LMDB", "SQLite"} == set(names)
    assert all("IS NOT MEASURED" in note for note in notes)
    assert "KAFKALOG, JOURNAL" in " ".join(notes)


def rounds(request_us: int, p99_us: int, syncs: int) -> Sequence[Round]:
    """Return two equal rounds of 1,000 requests in 100 groups."""
    return [Round(1000, 1000 * request_us, p99_us // 2, p99_us, 100, syncs)] * 2


def test_results_compare_with_the_best_of_each_kind() -> None:
    """The fastest peer and that of the smallest percentile may be different ones."""
    found = {
        "kafkalog": rounds(100, 8000, 150),
        "RocksDB": rounds(50, 9000, 100),
        "LMDB": rounds(80, 4000, 200),
    }
    requests, p99, syncs, *others = ingest.results_of(found, 10)
    assert ("P18", "10 partitions", 0.5) == (requests.goal, requests.work, requests.ratio)
    assert ("P19", 0.5) == (p99.goal, p99.ratio)
    assert ("P20", (1.5, 1.5), "syncs a group") == (syncs.goal, syncs.ours, syncs.unit)
    assert [("", "RocksDB", 0.5), ("", "LMDB", 0.8)] == [
        (each.goal, each.peer, each.ratio) for each in others
    ]
    with_journal = {**found, "kafkalog, journal": rounds(50, 4000, 100)}
    goals = {each.goal: each for each in ingest.results_of(with_journal, 1000) if each.goal}
    assert {"P18", "P19", "P20"} == set(goals)
    assert all(each.what.startswith("kafkalog, journal") for each in goals.values())
    assert all(each.is_reached for each in goals.values())
    with_linger = {**with_journal, LINGER: rounds(25, 2000, 100)}
    goals = {each.goal: each for each in ingest.results_of(with_linger, 1000) if each.goal}
    assert {each.what for each in goals.values()} == {LINGER, f"{LINGER}: p99", f"{LINGER}: syncs"}


def test_round_resolves_every_request() -> None:
    """Clients and pump in this process, with an engine that keeps nothing."""

    class Nothing:
        def store(self, group: Sequence[object]) -> list[object]:
            return list(group)

        def close(self) -> None:
            pass

    found = asyncio.run(ingest_process.run_round(Nothing(), make_requests(), 0.01, lambda: 0))
    assert found.requests >= ingest_process.CLIENTS
    assert found.groups >= 1


@pytest.mark.parametrize("name", [ingest.OURS, ingest.JOURNAL, LINGER, "LMDB"])
def test_http_service_answers_each_request(name: str, tmp_path: Path) -> None:
    """Ours by `kafkalog.aio`, a peer by its pump."""
    requests = ingest_http.make_requests()
    with ingest_http.Service(name, 3, tmp_path / "store-0") as service:
        service.wait()
        found = asyncio.run(ingest_http.run_round(service.port, requests, 0.05))
    assert found.requests >= ingest_http.CONNECTIONS
    assert 0 < found.p50_ns <= found.p99_ns <= found.elapsed_ns


def test_http_goals_are_for_the_journal_and_the_best_peer() -> None:
    """Of each figure the best, which may be of two peers."""
    found = {
        ingest.OURS: [ingest_http.Round(10, 4000, 1, 900)],
        ingest.JOURNAL: [ingest_http.Round(10, 2000, 1, 500)],
        "RocksDB": [ingest_http.Round(10, 1000, 1, 800)],
        "LMDB": [ingest_http.Round(10, 3000, 1, 400)],
    }
    results = {each.goal: each for each in ingest_http.results_of(found, 10) if each.goal}
    assert {"P22": 0.5, "P23": 0.8} == {goal: each.ratio for goal, each in results.items()}
    assert all(each.work == "10 partitions" for each in results.values())
