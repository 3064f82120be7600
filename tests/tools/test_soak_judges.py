"""The judges of the soak fail where they must: lost, doubled, changed records; growing series."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import LogManager, Record, TopicPartition
from tests.soak.conductor import Run, judge_samples
from tests.soak.final_state import judge_accounts, judge_directory
from tests.soak.flatness import ALLOWANCES, Allowance, judge_series
from tests.soak.numbered import (
    ABORTED,
    OrderJudge,
    missing_records,
    record_value,
    record_values,
)
from tests.soak.sampling import disk_sample
from tests.soak.stage import Outcome
from tests.soak.web import metric

EVENTS = TopicPartition("events", 0)
SECONDS = 3600.0


def judged(values: list[bytes], *, gap: bool = False) -> list[str]:
    """Return the violations of the records of a partition."""
    judge = OrderJudge()
    if gap:
        judge.allow_gap(EVENTS)
    judge.read(EVENTS, values)
    assert len(values) == judge.record_count
    return judge.violations


def test_order_judge_accepts_consecutive_records() -> None:
    """Of two clients in turn."""
    first, second = record_values("a", 0, 20), record_values("b", 0, 20)
    assert [] == judged([value for pair in zip(first, second, strict=True) for value in pair])


@pytest.mark.parametrize("number", [0, 7, 18])
def test_order_judge_lost_record_is_found(number: int) -> None:
    """At the beginning and in the middle."""
    values = record_values("a", 0, 20)
    del values[number]
    assert [f"records {number} to {number} of a are lost (events-0)"] == judged(values)


@pytest.mark.parametrize("number", [0, 7, 19])
def test_order_judge_doubled_record_is_found(number: int) -> None:
    """Next to each other."""
    values = record_values("a", 0, 20)
    values.insert(number, values[number])
    assert [f"record {number} of a is in events-0 twice"] == judged(values)


def test_order_judge_changed_and_unknown_records_are_found() -> None:
    """A changed byte, foreign bytes, and a record of an aborted transaction."""
    values = record_values("a", 0, 3)
    values[1] = values[1][:-1] + b"?"
    values.append(b"nonsense")
    values.append(record_value(ABORTED, 4))
    found = judged(values)
    assert "record 1 of a in events-0 has other contents" == found[0]
    assert "records 1 to 1 of a are lost (events-0)" == found[1]
    assert "no client has sent" in found[2]
    assert "record 4 of an aborted transaction" in found[3]


def test_order_judge_other_partition_is_found() -> None:
    """The records of a client belong to one partition."""
    judge = OrderJudge()
    judge.read(EVENTS, record_values("a", 0, 2))
    judge.read(TopicPartition("events", 1), record_values("a", 2, 1))
    assert ["a has records in events-0 and events-1"] == judge.violations


def test_order_judge_gap_is_allowed_once() -> None:
    """Retention deletes the beginning of a log, and nothing after it."""
    assert [] == judged(record_values("a", 5, 3), gap=True)
    values = record_values("a", 5, 3) + record_values("a", 9, 1)
    assert ["records 8 to 8 of a are lost (events-0)"] == judged(values, gap=True)


def test_missing_records_of_a_client_are_found() -> None:
    """Also those of a client that a reader has never seen."""
    assert [] == missing_records({"a": 3, "b": 0}, {"a": 4})
    found = missing_records({"a": 3, "b": 2}, {"a": 2})
    assert "records 2 to 2 of a are acknowledged and missing" == found[0]
    assert "records 0 to 1 of b are acknowledged and missing" == found[1]


def test_accounts_must_have_the_acknowledged_version() -> None:
    """Or the next one; a lost key and an older version are found."""
    versions = {0: 3, 1: 4, 2: 2}
    last = {key: record_value(f"account-{key}", version) for key, version in versions.items()}
    assert [] == judge_accounts([3, 3, 2], last)
    assert ["account 2"] == [each[:9] for each in judge_accounts([3, 3, 3], last)]
    assert ["account 3"] == [each[:9] for each in judge_accounts([3, 3, 2, 1], last)]


def test_directory_judge_finds_a_lost_record(tmp_path: Path) -> None:
    """In a directory with the engine's own files, and in a complete directory."""
    for number, values in enumerate((record_values("a", 0, 9), record_values("a", 0, 8))):
        directory = tmp_path / str(number)
        with LogManager([directory]) as manager:
            manager.create_topic("events", 1)
            manager.log("events").append([Record(value=value) for value in values])
        found, count = judge_directory(directory, {"a": 9}, ["a"])
        assert (number, 9 - number) == (len(found), count)
    found, _ = judge_directory(tmp_path / "0", {"a": 9, "b": 1}, ["a", "b"])
    assert ["b has no record any more"] == found


def series(value: Callable[[float], float]) -> list[tuple[float, float]]:
    """Return an hour of samples of a function of the share of the run."""
    generator = random.Random(7)
    times = [10.0 * number for number in range(360)]
    return [(at, value(at / SECONDS) * generator.uniform(0.98, 1.02)) for at in times]


MIB = float(1 << 20)


@pytest.mark.parametrize(
    ("value", "is_flat"),
    [
        (lambda share: 80 * MIB, True),
        (lambda share: 60 * MIB + 20 * MIB * min(share / 0.15, 1), True),
        (lambda share: (80 + 15 * (share * 40 % 1)) * MIB, True),
        (lambda share: (80 + 40 * share) * MIB, False),
        (lambda share: (80 + 16 * share) * MIB, False),
        (lambda share: (80 + (12 if share > 0.7 else 0)) * MIB, False),
        # Peaks that become higher, with a median that stays.
        (lambda share: (80 + (60 * share if share * 90 % 1 < 0.2 else 0)) * MIB, False),
    ],
)
def test_flatness_of_memory(value: Callable[[float], float], is_flat: bool) -> None:
    """A warm-up and a saw are flat; a leak of 16 MiB an hour, a step and higher peaks are not."""
    verdict = judge_series(series(value), SECONDS, ALLOWANCES["rss"])
    assert is_flat == (verdict.problem == "")


def test_flatness_of_descriptors() -> None:
    """A leak of a descriptor in two minutes is found."""
    leaking = series(lambda share: 60 + 30 * share)
    assert judge_series(leaking, SECONDS, ALLOWANCES["descriptors"]).problem
    assert not judge_series(series(lambda share: 60), SECONDS, ALLOWANCES["descriptors"]).problem


def test_flatness_without_samples_is_a_problem() -> None:
    """A process that is gone in the last fifth was not judged."""
    gone = [each for each in series(lambda share: 1) if each[0] < 0.7 * SECONDS]
    assert "samples" in judge_series(gone, SECONDS, Allowance(1, 1)).problem


def test_run_with_a_leaking_process_has_a_problem() -> None:
    """The series of all processes are judged, each by the allowance of its measure."""
    flat = {"rss": 50 << 20, "descriptors": 20, "mappings": 500, "threads": 4}
    run = Run(1, SECONDS, True)
    for number in range(360):
        growing = {**flat, "mappings": 500 + number}
        sample = {"at": 10.0 * number, "a": {"life": 1, **flat}, "b": {"life": 1, **growing}}
        run.samples.append(sample)
    judge_samples(run)
    assert ["mappings of b is not flat"] == [each.partition(":")[0] for each in run.problems]
    assert 8 == len(run.verdicts)


def test_outcome_records_what_is_not_as_it_must_be() -> None:
    """A wrong answer, and a metric that does not show the fault."""
    outcome = Outcome("full disk", 1.0)
    outcome.expect(True, "never")
    outcome.show("free", 0.0, is_shown=True)
    assert [] == outcome.problems
    outcome.expect(False, "status 200")
    outcome.show("free", 9.0, is_shown=False)
    assert ["status 200", "free is 9.0: it does not show the fault"] == outcome.problems


def test_metric_sums_the_samples_of_its_name() -> None:
    """Names that begin with it are others."""
    text = '# HELP a b\na{x="1"} 2\na{x="2"} 3.5\na_total 9\n'
    assert 5.5 == metric(text, "a")
    assert 3.5 == metric(text, "a", 'x="2"')
    assert metric(text, "b") is None


def test_disk_sample_counts_the_journal_apart(tmp_path: Path) -> None:
    """Allocated bytes, in directories below as well."""
    (tmp_path / "events-0").mkdir()
    (tmp_path / "events-0" / "a.log").write_bytes(b"x" * 8192)
    (tmp_path / ".kafkalog_journal.1").write_bytes(b"x" * 65536)
    found = disk_sample(tmp_path)
    assert 2 == found["files"]
    assert 8192 <= found["disk"] < 65536 <= found["journal"]
