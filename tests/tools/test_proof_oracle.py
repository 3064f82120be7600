"""Tests of the oracle of the proof: each kind of broken promise is found, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from kafkalog import Codec, LogConfig, Record, open_log
from tests.proof.contents import Content, Spec, content, identity
from tests.proof.oracle import Observed, Oracle, Seen, View
from tests.proof.plain_log import encode_batch, read_log
from tests.proof.shared_events import SharedEvents

PLAIN = Spec("log-0")
KEYED = Spec("log-0", keys=1, compact=True)
STREAM = ("stream", 0, asdict(PLAIN))
# Two appends: 2 records, durable, and 1 record, written.
WRITTEN = (
    STREAM, ("ask", 0, 1, 2), ("ack", 0, 1, 0, True), ("ask", 0, 2, 1), ("ack", 0, 2, 2, False),
)  # fmt: skip


def oracle_of(events: Sequence[tuple[Any, ...]], *, exact: bool = False) -> Oracle:
    """Return the oracle of these events, all of them evidence."""
    oracle = Oracle(exact=exact)
    oracle.apply(events, evidence=True)
    oracle.ended()
    return oracle


def view_of(records: dict[int, tuple[int, int]], *, start: int = 0, outcome: str = "") -> View:
    """Return a view of one log with these records, all durable."""
    end = max(records, default=start - 1) + 1
    seen = {at: Seen(0, *name, outcome) for at, name in records.items()}
    return View({"log-0": Observed(start, end, seen, end)})


def titles(oracle: Oracle, view: View) -> list[str]:
    """Return the broken promises."""
    return sorted({each.title for each in oracle.check(view)})


@pytest.mark.parametrize(
    ("records", "start", "expected"),
    [
        ({0: (1, 0), 1: (1, 1)}, 0, []),
        ({0: (1, 0), 1: (1, 1), 2: (2, 0)}, 0, []),
        ({0: (1, 0)}, 0, ["a durable end is gone", "acknowledged records are lost"]),
        ({0: (1, 0), 1: (2, 0)}, 0, [
            "a record has moved, or is there twice", "an acknowledged offset has other content",
        ]),
        ({0: (1, 0), 1: (1, 1), 2: (9, 0)}, 0, ["a record that nobody wrote here"]),
        ({1: (1, 1)}, 1, ["acknowledged records are lost"]),
        ({0: (1, 0), 1: (1, 1), 3: (2, 0)}, 0, ["a record has moved, or is there twice"]),
    ],
)  # fmt: skip
def test_oracle_of_two_appends_finds_data_lost_in_a_power_cut(
    records: dict[int, tuple[int, int]], start: int, expected: list[str]
) -> None:
    """Data that was only written may be gone; durable data may not."""
    oracle = oracle_of([*WRITTEN, ("flush", 0, 2)])
    assert expected == titles(oracle, view_of(records, start=start))


def test_oracle_of_a_kill_expects_all_answered_data() -> None:
    """A killed process loses no written data."""
    lost = ["acknowledged records are lost"]
    assert lost == titles(oracle_of(WRITTEN, exact=True), view_of({0: (1, 0), 1: (1, 1)}))


def test_oracle_without_evidence_expects_no_answered_data() -> None:
    """Data answered after the power cut may be gone."""
    oracle = Oracle(exact=False)
    oracle.apply(WRITTEN, evidence=False)
    assert [] == titles(oracle, view_of({}))


def test_oracle_after_a_check_finds_reappearing_data() -> None:
    """Served data stays after a recovery, missing data stays missing."""
    oracle = oracle_of(WRITTEN)
    assert [] == titles(oracle, view_of({0: (1, 0), 1: (1, 1)}))
    back = view_of({0: (1, 0), 1: (1, 1), 2: (2, 0)})
    assert ["a record that was lost is back"] == titles(oracle, back)


def test_oracle_expects_deletions_and_truncations() -> None:
    """Data deleted or truncated with an answer does not come back."""
    deleted = oracle_of([*WRITTEN, ("delete", 0, 1), ("deleted", 0, 1)])
    whole = view_of({0: (1, 0), 1: (1, 1)})
    assert ["deleted records are back"] == titles(deleted, whole)
    cut = oracle_of([*WRITTEN, ("truncate", 0, 0), ("truncated", 0, 0)])
    assert ["a truncated record is back"] == titles(cut, whole)


def test_oracle_of_a_compacted_log_expects_the_latest_of_a_key() -> None:
    """An older record may go, the latest may not."""
    events = (("stream", 0, asdict(KEYED)), *WRITTEN[1:], ("flush", 0, 3))
    assert [] == titles(oracle_of(events), view_of({2: (2, 0)}))
    lost = ["a durable end is gone", "acknowledged records are lost"]
    assert lost == titles(oracle_of(events), view_of({0: (1, 0), 1: (1, 1)}))


@pytest.mark.parametrize(
    ("reported", "expected"),
    [((), ["an append is there in part, and not its beginning"]), (((0, 1),), [])],
    ids=["silent", "reported"],
)
def test_oracle_of_an_append_without_its_beginning_requires_a_report(
    reported: tuple[tuple[int, int], ...], expected: list[str]
) -> None:
    """Messages of old formats are batches of their own: a power cut may take the first alone."""
    view = view_of({1: (1, 1)})
    view.partitions["log-0"].reported = reported
    events = (STREAM, ("ask", 0, 1, 2), ("ack", 0, 1, 0, False))
    assert expected == titles(oracle_of(events), view)


COMPACTION = (("begin", "compact"), ("end", "compact"))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(COMPACTION, (), []), ((), COMPACTION, ["acknowledged records are lost"])],
    ids=["compacted before", "compacted after"],
)
def test_oracle_of_a_truncation_allows_records_compacted_before(
    before: Sequence[tuple[Any, ...]], after: Sequence[tuple[Any, ...]], expected: list[str]
) -> None:
    """An older record is gone although the truncation removes its successor."""
    cut = (("truncate", 0, 2), ("truncated", 0, 2))
    stream = ("stream", 0, asdict(KEYED))
    events = (stream, *WRITTEN[1:], *before, *cut, ("flush", 0, 2), *after)
    empty = View({"log-0": Observed(0, 2, {}, 2)})
    assert expected == titles(oracle_of(events), empty)


TRANSACTION = (
    STREAM, ("transaction", 5), ("ask", 0, 1, 1, 5), ("ask", 0, 2, 1, 5), ("ack", 0, 1, 0, False),
    ("ack", 0, 2, 1, False),
)  # fmt: skip
BOTH = {0: (1, 0), 1: (2, 0)}


@pytest.mark.parametrize(
    ("events", "records", "outcome", "expected"),
    [
        ((("commit", 5, True),), BOTH, "committed", []),
        ((("commit", 5, False),), BOTH, "committed", []),
        ((("commit", 5, False),), BOTH, "aborted", []),
        ((), BOTH, "committed", ["a transaction that nobody committed is visible"]),
        ((("abort", 5, True),), BOTH, "committed", [
            "a transaction that nobody committed is visible",
        ]),
        ((("commit", 5, True),), BOTH, "aborted", ["a committed transaction is not visible"]),
        ((("commit", 5, False),), {0: (1, 0)}, "committed", ["half a transaction is visible"]),
        ((), BOTH, "open", ["a transaction stays open"]),
    ],
)  # fmt: skip
def test_oracle_of_a_transaction_expects_it_whole_and_requested(
    events: tuple[tuple[Any, ...], ...],
    records: dict[int, tuple[int, int]],
    outcome: str,
    expected: list[str],
) -> None:
    """Transactions are atomic, and visible only with a request to commit (DUR-1)."""
    oracle = oracle_of([*TRANSACTION, *events])
    assert expected == titles(oracle, view_of(records, outcome=outcome))


def test_oracle_checks_topics_positions_and_rows() -> None:
    """A deleted topic stays deleted, a position is kept, rows of the sink are there once."""
    events = [
        ("topic", "a", "asked", []), ("topic", "a", "there", []), ("topic", "a", "deleting", []),
        ("topic", "a", "gone", []), ("topic", "b", "asked", []), ("topic", "b", "there", []),
        ("position", "g", "a-0", 3), ("positioned", "g", "a-0", 3, True),
        ("position", "g", "a-0", 4), ("sink", 7, [(0, 2)], True),
    ]  # fmt: skip
    bad = View({}, {"a": 0}, {("g", "a-0"): 1}, {"sink.7.0.0": 2, "sink.7.0.1": 1})
    assert [
        "a deleted topic is back", "a group's position is lost", "a row of the sink is there twice",
        "a topic is gone",
    ] == titles(oracle_of(events), bad)  # fmt: skip
    good = View({}, {"b": 0}, {("g", "a-0"): 4}, {"sink.7.0.0": 1, "sink.7.0.1": 1})
    assert [] == titles(oracle_of(events), good)


def test_oracle_drops_streams_of_a_topic_not_requested_before_a_kill() -> None:
    """The process was killed between the two lines; the next one numbers them again."""
    spec = asdict(Spec("log-0", topic="a"))
    events = [
        ("stream", 7, spec), ("stream", 0, spec), ("topic", "a", "asked", [0]),
        ("topic", "a", "there", []), ("ask", 0, 1, 1), ("ack", 0, 1, 0, True),
    ]  # fmt: skip
    view = View({"log-0": Observed(0, 1, {0: Seen(0, 1, 0, "")}, 1)}, {"a": 1})
    assert [] == titles(oracle_of(events), view)


def test_record_identifies_itself() -> None:
    """Every record of the workload can be recognized, tombstones too."""
    spec = Spec("log-0", keys=3, tombstones=True)
    every = [content(spec, 4, 5, index) for index in range(100)]
    assert any(each.value is None for each in every)
    assert [(4, 5, index) for index in range(100)] == [
        identity(each.value, each.headers) for each in every
    ]
    assert identity(b"foreign", ()) is None
    assert Content(None, b"4:5:6:", ()).value == b"4:5:6:"


def test_shared_events_are_read_up_to_a_length(tmp_path: Path) -> None:
    """Events are whole, in order, and bounded by the length at the moment of a cut."""
    shared = SharedEvents(tmp_path / "events", 1 << 16)
    shared.clear()
    shared.add("ask", 1)
    length = shared.length()
    shared.add("ack", 1, True)
    assert [("ask", 1)] == shared.events(8, length)
    assert [("ack", 1, True)] == shared.events(length, shared.length())


@pytest.mark.parametrize("codec", [each.kafka_name for each in Codec if each])
@pytest.mark.parametrize("release", ["0.9.0", "0.10.2", "4.1"])
def test_plain_reader_reads_files_of_the_library(tmp_path: Path, codec: str, release: str) -> None:
    """The proof's own reader has every format and codec, and resumes after damage."""
    if codec == "zstd" and release != "4.1":
        pytest.skip("old formats have no zstd")
    config = LogConfig(compression_type=codec, message_format_version=release)
    with open_log(tmp_path / "t-0", config=config) as log:
        for turn in range(3):
            log.append([Record(key=b"k", value=b"%d" % turn * 50, timestamp_ms=7)] * 3)
        expected = [(each.offset, each.key, each.value) for each in log.records(0)]
    found = read_log(tmp_path / "t-0")
    assert [] == found.stops
    assert expected == [(each.offset, each.key, each.value) for _, each in found.data()]

    path = tmp_path / "t-0" / f"{0:020d}.log"
    damaged = bytearray(path.read_bytes())
    damaged[30] ^= 1
    path.write_bytes(damaged)
    resumed = read_log(tmp_path / "t-0")
    assert 1 == len(resumed.stops)
    assert found.batches[1:] == resumed.batches


def test_plain_writer_is_read_by_the_library(tmp_path: Path) -> None:
    """Batches of the proof's own writer are valid, and a damaged batch affects no other."""
    batches = [encode_batch([(b"k", b"%d" % each, [("h", b"x")])]) for each in range(3)]
    with open_log(tmp_path / "t-0") as log:
        for data in batches:
            log.append_batches(data)
        assert [b"0", b"1", b"2"] == [each.value for each in log.records(0)]
    path = tmp_path / "t-0" / f"{0:020d}.log"
    damaged = bytearray(path.read_bytes())
    damaged[len(batches[0]) + 62] ^= 1
    path.write_bytes(damaged)
    found = read_log(tmp_path / "t-0")
    assert [0, 2] == [batch.base_offset for batch in found.batches]
    assert 1 == len(found.stops)
