"""Parts of the judges of power cuts and kills, each alone."""

from __future__ import annotations

import os
import signal
from dataclasses import asdict
from pathlib import Path
from random import Random

from tests.proof.block_replays import Entry, Recording, images_of
from tests.proof.contents import Spec
from tests.proof.harness import Proof
from tests.proof.oracle import Observed, Oracle, Seen, View
from tests.proof.shared_events import Event, SharedEvents
from tests.proof.side_by_side import Judge, run_side_by_side
from tests.proof.single_logs import resendable
from tests.proof.tally import tally

SPEC = Spec("t-0", topic="t")
OLD, NEW = 1, 2


def proof_in(folder: Path) -> Proof:
    """Return a proof that keeps its evidence in a folder as well."""
    return Proof("judges", 7, 30.0, folder, evidence_root=folder / "evidence")


def oracle_of_remade_topic(*, evidence: bool) -> Oracle:
    """Return an oracle that saw a topic of one record deleted and made again."""
    oracle = Oracle(exact=False)
    oracle.apply(
        [
            ("stream", OLD, asdict(SPEC)),
            ("topic", "t", "asked", [OLD]),
            ("topic", "t", "there", []),
            ("ask", OLD, 100, 1),
            ("ack", OLD, 100, 0, True),
            ("topic", "t", "deleting", []),
        ],
        evidence=True,
    )
    events: list[Event] = [
        ("topic", "t", "gone", []),
        ("stream", NEW, asdict(SPEC)),
        ("topic", "t", "asked", [NEW]),
    ]
    oracle.apply(events, evidence=evidence)
    oracle.ended()
    return oracle


def view_of(stream: int, operation: int) -> View:
    """Return a view in which the topic has one record."""
    record = Seen(stream, operation, 0, "")
    return View({"t-0": Observed(0, 1, {0: record}, 1)}, {"t": 1})


def test_oracle_topic_remade_after_the_cut_began_takes_the_former_one_for_right() -> None:
    """A deletion that was only a rumour may not have come to the disk: the old topic is there."""
    oracle = oracle_of_remade_topic(evidence=False)
    assert oracle.undecided_topics() == ["t"]
    oracle.decide_topic("t", {OLD})
    assert oracle.check(view_of(OLD, 100)) == []
    assert sorted(oracle.streams) == [OLD]


def test_oracle_topic_remade_and_empty_is_taken_for_the_new_one() -> None:
    """Without a record of either, the topic is the second one: nothing is missing."""
    oracle = oracle_of_remade_topic(evidence=False)
    oracle.decide_topic("t", set())
    assert oracle.check(View({"t-0": Observed(0, 0, {}, 0)}, {"t": 1})) == []
    assert sorted(oracle.streams) == [NEW]


def test_oracle_deletion_acknowledged_does_not_let_the_former_topic_return() -> None:
    """Records of a topic whose deletion was acknowledged are a finding."""
    oracle = oracle_of_remade_topic(evidence=True)
    assert oracle.undecided_topics() == []
    titles = [each.title for each in oracle.check(view_of(OLD, 100))]
    assert titles == ["a record that nobody wrote here"]


def test_resendable_batch_below_the_log_start_is_left_out() -> None:
    """A producer is known as long as the segment of its last batch stays, and no longer."""
    oracle = Oracle(exact=False)
    oracle.apply(
        [
            ("stream", OLD, asdict(SPEC)),
            ("ask", OLD, 100, 2),
            ("produced", OLD, 100, 7000, 0),
            ("ack", OLD, 100, 0, True),
            ("ask", OLD, 101, 2),
            ("produced", OLD, 101, 7001, 0),
            ("ack", OLD, 101, 2, True),
        ],
        evidence=True,
    )
    stream = oracle.streams[OLD]
    assert [each[0] for each in resendable(stream)] == [101, 100]
    oracle.apply([("delete", OLD, 2), ("deleted", OLD, 2)], evidence=True)
    assert list(resendable(stream)) == [(101, 7001, 2, 2)]


def test_shared_events_length_read_during_appends_never_falls(
    tmp_path: Path,
) -> None:
    """A reader, or a kill of the writer, at any moment finds whole events."""
    shared = SharedEvents(tmp_path / "events")
    shared.clear()
    process = os.fork()
    if process == 0:
        for number in range(1_000_000):
            shared.add("n", number)
        os._exit(0)
    reached, previous = 0, 8
    while previous < 1 << 16:
        length = shared.length()
        assert length >= previous, (length, previous)
        for event in shared.events(previous, length):
            assert event == ("n", reached)
            reached += 1
        previous = length
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert shared.length() >= previous


def test_tally_of_a_life_counts_what_was_done_and_what_the_end_interrupted() -> None:
    """Acknowledgements, things done and things that had begun are counted apart."""
    counts = tally(
        [
            ("begin", "opening"),
            ("end", "opening"),
            ("ask", OLD, 1, 1),
            ("ack", OLD, 1, 0, True),
            ("form", "lists", 2, "zstd"),
            ("ask", OLD, 2, 1),
            ("commit", 5, False),
            ("commit", 5, True),
            ("abort", 6, False),
            ("position", "g", "t-0", 3, 5),
            ("begin", "compact"),
        ]
    )
    assert dict(counts) == {
        "appends acknowledged": 1,
        "appends acknowledged as durable": 1,
        "appends by lists": 1,
        "appends in format v2": 1,
        "appends with compression.type=zstd": 1,
        "transactions committed": 1,
        "positions of groups within transactions": 1,
        "ends during: compact": 1,
    }


def test_side_by_side_counts_notes_and_findings_of_all_judges_are_added(tmp_path: Path) -> None:
    """Counts and findings of a judge in its process are those of the part."""

    def count(proof: Proof) -> None:
        proof.count("rounds", proof.seed)
        proof.note("a note")

    def find(proof: Proof) -> None:
        proof.count("rounds")
        proof.broken("a promise", "details")

    def end(proof: Proof) -> None:
        os._exit(3)

    def fail(proof: Proof) -> None:
        raise RuntimeError("a defect of the judge")

    proof = proof_in(tmp_path)
    judges = [Judge("a", count), Judge("b", find), Judge("c", end), Judge("d", fail)]
    run_side_by_side(proof, judges)
    assert proof.counts["rounds"] == 8
    assert proof.notes == ["a note"]
    titles = sorted(each.title for each in proof.found)
    assert titles == [
        "a judge ended in an error",
        "a judge has ended without an answer",
        "a promise",
    ]
    assert (tmp_path / "evidence" / "judges-b-7-1" / "what.txt").exists()


def oracle_of_positions() -> Oracle:
    """Return an oracle of a transaction that was to be committed, with a record and a position."""
    oracle = Oracle(exact=False)
    oracle.apply(
        [
            ("stream", OLD, asdict(SPEC)),
            ("topic", "t", "asked", [OLD]),
            ("topic", "t", "there", []),
            ("transaction", 50),
            ("ask", OLD, 100, 1, 50),
            ("position", "g", "t-0", 50, 50),
            ("commit", 50, False),
        ],
        evidence=True,
    )
    oracle.ended()
    return oracle


def test_oracle_position_outlives_the_records_of_its_transaction() -> None:
    """If all its records were deleted, its position shows that a transaction was committed."""
    oracle = oracle_of_positions()
    oracle.apply([("delete", OLD, 5), ("deleted", OLD, 5)], evidence=True)
    view = View({"t-0": Observed(5, 5, {}, 5)}, {"t": 1}, {("g", "t-0"): 50})
    assert oracle.check(view) == []
    assert oracle.check(view) == []


def test_oracle_position_without_the_records_of_its_transaction_is_half_of_it() -> None:
    """Nothing was deleted: where the position is there, the record has to be."""
    view = View({"t-0": Observed(0, 0, {}, 0)}, {"t": 1}, {("g", "t-0"): 50})
    titles = [each.title for each in oracle_of_positions().check(view)]
    assert titles == ["half a transaction is visible"]


def recording_in(folder: Path) -> Recording:
    """Return a record of four writes with two flushes between them, with the reports."""
    base = folder / "base"
    base.write_bytes(bytes(4 * 4096))
    entries = [
        Entry(0, b"a" * 4096, 4120),
        Entry(0, None, 4144),
        Entry(4096, b"b" * 4096, 8264),
        Entry(0, None, 8288),
        Entry(0, b"c" * 8192, 16504),
    ]
    return Recording(base, entries, [(4144, 30), (8200, 50), (8288, 70)])


def test_images_of_a_record_hold_what_was_flushed_and_any_block_behind_it(tmp_path: Path) -> None:
    """Up to a flush all is there; what came after it is there in part; nothing else is."""
    found = set()
    for seed in range(40):
        folder = tmp_path / str(seed)
        folder.mkdir()
        image = folder / "image"
        for end, size in images_of(recording_in(folder), image, Random(seed), 6):
            data = image.read_bytes()
            found.add((end, size, data[:1], data[4096:4097], data[8192:8193]))
    zero = bytes(1)
    assert found == {
        (0, 8, zero, zero, zero),
        *((4120, 8, first, zero, zero) for first in (zero, b"a")),
        (4144, 30, b"a", zero, zero),
        *((8264, 50, b"a", second, zero) for second in (zero, b"b")),
        (8288, 70, b"a", b"b", zero),
        *((16504, 70, first, second, zero) for first in (b"a", b"c") for second in (b"b", b"c")),
    }
