"""Transactions of the sink: commit, replay, abort, locks, refusals and recovery."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalog import LogManager
from kafkalog.errors import CorruptStateError
from kafkalog.files.filesystem import FileLock
from kafkalog.files.posix import PosixFileSystem
from kafkalog.log.log import Log
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.txn.model import Intent, StagedFile, TransactionId
from kafkalog.spark.txn.staging import STAGING_DIRECTORY, StagingArea
from kafkalog.spark.txn.state import LOCK_FILE, SinkState
from kafkalog.spark.txn.transaction import SinkOptions, SinkTransaction
from tests.support.manual_time import START_MS
from tests.support.simulated_disk import SimulatedDisk
from tests.support.sink_rig import (
    DATA,
    TOPIC,
    MomentDisk,
    SinkRig,
    manager_of,
    new_disk,
    stage_rows,
)

ROWS = ((0, 3), (1, 26))


@pytest.fixture
def rig() -> SinkRig:
    """A sink on a disk with a topic of two partitions."""
    return SinkRig(new_disk())


def refusal(act: Callable[[], object]) -> KafkaLogSparkError:
    """Return the error of an action."""
    with pytest.raises(KafkaLogSparkError) as caught:
        act()
    return caught.value


def names(disk: SimulatedDisk) -> list[str]:
    """Return the remaining files of the sink, except lock, epoch and ledger."""
    kept = (LOCK_FILE, "-epoch", "-ledger")
    return [
        path
        for path in disk.snapshot()
        if ".kafkalog-sink" in path and not any(part in path for part in kept)
    ]


def identity_of(disk: SimulatedDisk, path: Path) -> int:
    """Return the id of the file at a path."""
    facts = disk.stat(path)
    assert facts is not None
    return facts.file_id


# ------------------------------------------------------------------------------ replays


def test_commit_publishes_rows_and_removes_its_files(rig: SinkRig) -> None:
    """The report has the ranges of each log; only epoch, lock and ledger stay."""
    report = rig.commit(0, ROWS)
    assert [] == rig.problems()
    assert [] == rig.problems_of_opening()
    assert (29, False, None) == (report.record_count, report.was_committed, report.recovered)
    assert [(0, 0, 3), (1, 0, 26)] == [
        (each["partition"], each["start"], each["end"]) for each in report.ranges
    ]
    assert [] == names(rig.disk)


def test_commit_renames_a_small_file_only_to_an_empty_segment(
    rig: SinkRig,
) -> None:
    """Also after other segments; elsewhere it would add a small segment."""

    def segments() -> list[int]:
        with manager_of(rig.disk) as manager:
            return [segment.base_offset for segment in manager.log(TOPIC, 0).segments()]

    identities = []
    for version, expected in enumerate(([0], [0])):
        files = rig.stage(version, [(0, 3)])
        identities.append(identity_of(rig.disk, Path(files[0].path)))
        rig.transaction(version).commit(files)
        assert expected == segments()
    present = DATA / f"{TOPIC}-0" / f"{0:020d}.log"
    assert identities[0] == identity_of(rig.disk, present)
    with manager_of(rig.disk) as manager:
        manager.log(TOPIC, 0).roll()
    files = rig.stage(2, [(0, 3)])
    identities.append(identity_of(rig.disk, Path(files[0].path)))
    rig.transaction(2).commit(files)
    assert [0, 6] == segments()
    present = DATA / f"{TOPIC}-0" / f"{6:020d}.log"
    assert identities[2] == identity_of(rig.disk, present)
    for version in range(3):
        rig.expect(version, [(0, 3)])
    assert [] == rig.problems() + rig.problems_of_opening()


@pytest.mark.parametrize("version", [3, 2, 0])
def test_commit_of_a_version_up_to_the_ledger_is_skipped(rig: SinkRig, version: int) -> None:
    """A replay or an older version publishes nothing and leaves no file."""
    rig.commit(3, ROWS)
    report = rig.transaction(version).commit(rig.stage(version, ROWS))
    assert report.was_committed
    assert 0 == report.record_count
    assert [] == rig.problems()
    assert [] == names(rig.disk)


def test_commit_of_another_application_has_its_own_versions(rig: SinkRig) -> None:
    """The ledger has the version of each application."""
    rig.commit(3, ROWS)
    rig.transaction(1, "other").commit(rig.stage(1, ROWS, app="other"))
    rig.expect(1, ROWS, app="other")
    assert [] == rig.problems()


def test_commit_without_a_version_is_published_once(rig: SinkRig) -> None:
    """Spark may repeat the commit; the ledger removes the entry when that is impossible."""
    first = replace_transaction(rig, TransactionId.unique())
    file = stage_rows(first, 0, ["a"], "0")
    assert 1 == first.commit([file]).record_count
    assert first.commit([file]).was_committed
    rig.expected[0]["a"] += 1
    assert [] == rig.problems()
    rig.clock.advance(10**15 + 1)
    second = replace_transaction(rig, TransactionId.unique())
    second.commit([])
    assert not SinkState(rig.disk, DATA).is_committed(first.transaction)
    assert SinkState(rig.disk, DATA).is_committed(second.transaction)


def test_commit_without_rows_is_recorded(rig: SinkRig) -> None:
    """A micro-batch without rows is a version too."""
    assert 0 == rig.transaction(0).commit([]).record_count
    assert rig.transaction(0).commit([]).was_committed


def test_commit_creates_missing_topics(tmp_path: Path) -> None:
    """With the partition count of the tasks and the configured segment size."""
    sink = SinkTransaction(
        tmp_path / "new", TransactionId.unique(), SinkOptions(segment_bytes=4096)
    )
    file = stage_rows(sink, 1, ["a", "b"], "0")
    sink.commit([replace(file, topic="made", partition_count=3)])
    with LogManager([tmp_path / "new"]) as manager:
        assert {"made": (0, 1, 2)} == manager.topics()
        assert 4096 == manager.log("made", 1).config.segment_bytes
        assert [b"a", b"b"] == [record.value for record in manager.log("made", 1).records()]


def test_commit_that_empties_a_topic_continues_its_offsets(rig: SinkRig) -> None:
    """Older records of all partitions are deleted after the new ones are published."""
    rig.commit(0, ROWS)
    rig.transaction(1).commit(rig.stage(1, ((0, 2),)), emptied_topics=[TOPIC])
    with manager_of(rig.disk) as manager:
        assert [(3, 5), (26, 26)] == [
            (log.log_start_offset, log.log_end_offset)
            for log in (manager.log(TOPIC, 0), manager.log(TOPIC, 1))
        ]


def test_commit_with_another_staging_directory_succeeds(tmp_path: Path) -> None:
    """On the same file system, with a separate directory for each data directory."""
    elsewhere = tmp_path / "elsewhere"
    sink = SinkTransaction(
        tmp_path / "data", TransactionId.of_query("q", 0), SinkOptions(staging_directory=elsewhere)
    )
    file = stage_rows(sink, 0, ["a"], "0")
    assert Path(file.path).is_relative_to(elsewhere)
    sink.commit([file])
    assert [] == list(elsewhere.rglob("*"))
    assert not (tmp_path / "data" / STAGING_DIRECTORY).exists()


# ------------------------------------------------------------------------------ aborts, orphans


def test_abort_removes_uncommitted_files(rig: SinkRig) -> None:
    """A new attempt can commit."""
    assert rig.transaction(0).abort(rig.stage(0, ROWS))
    assert [] == names(rig.disk)
    rig.commit(0, ROWS)
    assert [] == rig.problems()


def test_abort_after_the_commit_changes_nothing(rig: SinkRig) -> None:
    """Spark aborts after a commit that raised at its end."""
    files = rig.stage(0, ROWS)
    rig.transaction(0).commit(files)
    rig.expect(0, ROWS)
    assert not rig.transaction(0).abort(files)
    assert [] == rig.problems()


def test_abort_after_the_intent_keeps_the_files(rig: SinkRig) -> None:
    """A transaction with an intent is committed, although no row is published yet."""
    found = interrupted(rig)
    assert not found.transaction(1).abort(staged_of(found))
    assert TransactionId.of_query("query", 1) == found.transaction(1).recover()
    found.expect(1, ROWS)
    assert [] == found.problems()


def test_sweep_removes_old_staging_directories(rig: SinkRig) -> None:
    """The age is that of the newest file; younger transactions stay."""
    sink = rig.transaction(7)
    rig.stage(7, ROWS, attempt=1)
    [directory] = rig.disk.list(sink.staging.root)
    written_ms = max(
        facts.modified_ms
        for name in rig.disk.list(sink.staging.root / directory)
        if (facts := rig.disk.stat(sink.staging.root / directory / name)) is not None
    )
    assert [] == sink.staging.sweep(written_ms + 10, 10)
    assert [directory] == sink.staging.sweep(written_ms + 11, 10)
    assert [] == names(rig.disk)


# ------------------------------------------------------------------------------ other writers


def test_commit_during_an_embedded_writer_is_refused(rig: SinkRig) -> None:
    """The writer keeps its lock; the staged files stay for another attempt."""
    files = rig.stage(0, ROWS)
    with manager_of(rig.disk):
        error = refusal(lambda: rig.transaction(0).commit(files))
    assert ErrorCode.LOCKED == error.code
    assert "[KAFKALOG.LOCKED]" in str(error)
    rig.transaction(0).commit(files)
    rig.expect(0, ROWS)
    assert [] == rig.problems()


def test_commits_of_two_sinks_wait_for_each_other(rig: SinkRig) -> None:
    """The second continues when the first releases its lock."""
    held: list[FileLock | None] = [rig.disk.lock(DATA / LOCK_FILE)]
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        lock = held.pop()
        assert lock is not None
        lock.release()

    sink = SinkTransaction(
        DATA,
        TransactionId.of_query("q", 0),
        SinkOptions(pause=pause),
        filesystem=rig.disk,
        clock=rig.clock,
    )
    assert 1 == sink.commit([stage_rows(sink, 0, ["a"], "0")]).record_count
    assert 1 == len(waits)


def test_commit_that_waited_too_long_is_refused(rig: SinkRig) -> None:
    """With LOCKED, if the other sink does not end."""
    lock = rig.disk.lock(DATA / LOCK_FILE)
    assert lock is not None
    assert ErrorCode.LOCKED == refusal(lambda: rig.transaction(0).commit([])).code
    lock.release()


def test_session_with_an_older_epoch_is_refused(rig: SinkRig) -> None:
    """Its lock was lost without notice: the epoch shows that."""
    first, second = SinkState(rig.disk, DATA), SinkState(rig.disk, DATA)
    first.begin_session()
    second.begin_session()
    intent = Intent(TransactionId.of_query("q", 0), first.epoch, START_MS, ())
    assert ErrorCode.TXN_CONFLICT == refusal(lambda: first.write_intent(intent)).code
    assert ErrorCode.TXN_CONFLICT == refusal(lambda: first.record_committed(intent, 0, 0)).code
    second.write_intent(replace(intent, epoch=second.epoch))
    found = second.read_intent()
    assert found is not None
    assert second.epoch == found.epoch


# ------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("settings", "changes", "code"),
    [
        ({"message.timestamp.type": "LogAppendTime"}, {}, ErrorCode.UNSUPPORTED),
        ({"message.format.version": "0.10.0"}, {}, ErrorCode.UNSUPPORTED),
        ({"max.message.bytes": "70"}, {}, ErrorCode.BATCH_TOO_LARGE),
        ({"cleanup.policy": "compact"}, {"null_key_count": 1}, ErrorCode.RECORD_INVALID),
        ({}, {"max_timestamp": START_MS + 10**10}, ErrorCode.RECORD_INVALID),
    ],
    ids=["append-time", "old-format", "too-large", "no-key", "in-the-future"],
)
def test_commit_against_a_topic_setting_is_refused(
    rig: SinkRig, settings: Mapping[str, str], changes: dict[str, Any], code: ErrorCode
) -> None:
    """Before the intent, so that no transaction is left in progress."""
    with manager_of(rig.disk) as manager:
        manager.create_topic("picky", 2, settings)
    sink = rig.transaction(0)
    file = replace(stage_rows(sink, 0, ["a", "b"], "0"), topic="picky", **changes)
    assert code == refusal(lambda: sink.commit([file])).code
    assert SinkState(rig.disk, DATA).read_intent() is None
    assert [] == rig.problems()


@pytest.mark.parametrize(
    "change",
    [{"partition_count": 3}, {"size_bytes": 1}, {"path": "/data/gone.log"}],
    ids=["partitions", "size", "gone"],
)
def test_commit_with_changed_files_or_topic_is_a_conflict(
    rig: SinkRig, change: dict[str, Any]
) -> None:
    """The topic has more partitions, or another run has removed the files."""
    files = rig.stage(0, ROWS)
    wrong = [replace(files[0], **change), files[1]]
    assert ErrorCode.TXN_CONFLICT == refusal(lambda: rig.transaction(0).commit(wrong)).code
    assert [] == rig.problems()


def test_commit_with_one_file_twice_is_a_conflict(rig: SinkRig) -> None:
    """A repeated message must not be published twice."""
    [file] = rig.stage(0, ROWS[:1])
    assert ErrorCode.TXN_CONFLICT == refusal(lambda: rig.transaction(0).commit([file, file])).code


# ------------------------------------------------------------------------------ after a crash


def interrupted(rig: SinkRig) -> SinkRig:
    """Return the sink after a crash directly after the intent of version 1."""
    disk = MomentDisk.of(rig.disk)
    other = rig.on(disk)
    disk.watch(1)
    other.transaction(1).commit(other.stage(1, ROWS))
    for state in disk.states:
        if any(path.endswith("intent.json") for path in state.snapshot()):
            return rig.on(state)
    raise AssertionError("no crash left an intent")


def staged_of(rig: SinkRig) -> list[StagedFile]:
    """Return the staged files of the pending intent."""
    intent = SinkState(rig.disk, DATA).read_intent()
    assert intent is not None
    return [
        StagedFile(each.path, each.topic, each.partition, 2, each.record_count, 0, 0, 0)
        for each in intent.entries
    ]


def change_log(rig: SinkRig, act: Callable[[Log], object]) -> None:
    """Change both partitions with an embedded writer."""
    with manager_of(rig.disk) as manager:
        for number in (0, 1):
            act(manager.log(TOPIC, number))


def test_recovery_of_a_deleted_topic_drops_its_rows(rig: SinkRig) -> None:
    """The deletion includes the rows of the transaction."""
    found = interrupted(rig)
    with manager_of(found.disk) as manager:
        manager.delete_topic(TOPIC)
    found.transaction(1).recover()
    assert SinkState(found.disk, DATA).read_intent() is None
    assert [] == names(found.disk)


def test_recovery_with_missing_staged_files_is_a_data_loss(rig: SinkRig) -> None:
    """A renamed file is no longer in the log, for an unknown reason."""
    rig.commit(0, ROWS)
    found = interrupted(rig)
    for file in staged_of(found):
        found.disk.unlink(Path(file.path))
    error = refusal(lambda: found.transaction(1).recover())
    assert ErrorCode.DATA_LOSS == error.code
    assert "intent" in str(error)


def test_recovery_of_a_log_truncated_before_publishing_appends_all_rows(rig: SinkRig) -> None:
    """At the new end of the log."""
    rig.commit(0, ROWS)
    found = interrupted(rig)
    change_log(found, lambda log: log.truncate_fully_and_start_at(0))
    found.expected = {number: type(texts)() for number, texts in found.expected.items()}
    found.transaction(1).recover()
    found.expect(1, ROWS)
    assert [] == found.problems()


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"format": 2}', b'{"format": 1}'])
def test_damaged_intent_raises(tmp_path: Path, content: bytes) -> None:
    """It is the only record of the commit, so it is not guessed."""
    path = tmp_path / ".kafkalog-sink-intent.json"
    path.write_bytes(content)
    with pytest.raises(CorruptStateError, match=r"intent\.json"):
        SinkState(PosixFileSystem(), tmp_path).read_intent()


@pytest.mark.parametrize("content", [b"x", b'{"format": 1}', b'{"format": 1, "version": null}'])
def test_damaged_ledger_raises(tmp_path: Path, content: bytes) -> None:
    """With an empty ledger rows would be published twice."""
    transaction = TransactionId.of_query("q", 1)
    (tmp_path / f".kafkalog-sink-ledger-{transaction.app_name}.json").write_bytes(content)
    with pytest.raises(CorruptStateError, match="ledger"):
        SinkState(PosixFileSystem(), tmp_path).is_committed(transaction)


@pytest.mark.parametrize("name", ["a b/c", "..", "", "x" * 300, "caf\u00e9"])
def test_application_with_any_name_has_a_ledger(tmp_path: Path, name: str) -> None:
    """A name that is invalid for a file is replaced by a digest."""
    transaction = TransactionId.of_application(name, 3)
    assert transaction.directory_name.isascii()
    assert "/" not in transaction.directory_name
    sink = SinkTransaction(tmp_path, transaction)
    sink.commit([stage_rows(sink, 0, ["a"], "0")])
    assert sink.commit([]).was_committed


def replace_transaction(rig: SinkRig, transaction: TransactionId) -> SinkTransaction:
    """Return a transaction of the rig with another id."""
    sink = rig.transaction(0)
    sink.transaction = transaction
    return sink


def test_manager_opens_a_directory_with_a_pending_intent(rig: SinkRig) -> None:
    """Files of the sink do not affect a manager."""
    found = interrupted(rig)
    with manager_of(found.disk) as manager:
        assert {TOPIC: (0, 1)} == manager.topics()
        assert 0 == manager.log(TOPIC, 0).log_end_offset


def test_staging_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    """HOST-6: no file is created in its target."""
    transaction = TransactionId.of_query("q", 7)
    staging = StagingArea(PosixFileSystem(), tmp_path / "data")
    victim, directory = tmp_path / "victim", staging.directory_of(transaction)
    victim.mkdir()
    directory.parent.mkdir(parents=True)
    directory.symlink_to(victim, target_is_directory=True)
    with pytest.raises(OSError) as caught:
        staging.create(transaction, "t-0")
    assert errno.ELOOP == caught.value.errno
    assert [] == list(victim.iterdir())
