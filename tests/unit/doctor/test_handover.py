"""Tests of the doctor's checks before data directories are handed over to a broker."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kafkalog import AppendOrigin, LogManager, Record, TopicPartition
from kafkalog.cli.app import app
from kafkalog.clients.offset_records import CommittedOffset
from kafkalog.clients.transaction_records import (
    TransactionRecord,
    TransactionState,
    encode_key,
    encode_value,
)
from kafkalog.doctor import examine
from kafkalog.doctor.examine import examine_directories
from kafkalog.doctor.findings import Diagnosis, Severity
from kafkalog.doctor.handover import HandOver
from kafkalog.files.posix import PosixFileSystem
from kafkalog.state.partition_metadata import write_partition_metadata
from tests.support.logs import manual_log, numbered
from tests.support.machines import MadeUpMachine
from tests.support.managers import append_texts, manual_manager
from tests.support.manual_time import ManualClock
from tests.support.old_logs import chapter
from tests.support.producer_batches import Produced, encoded

ONE = HandOver(offsets_partitions=1, transaction_partitions=1)


def judged(*directories: Path, broker: HandOver = ONE) -> Diagnosis:
    """Examine directories for a broker with one partition of each internal topic."""
    return examine_directories(
        directories, machine=MadeUpMachine(), clock=ManualClock(), handover=broker
    )


def found(diagnosis: Diagnosis, worst: Severity = Severity.WARNING) -> list[str]:
    """Return the names of the findings against the hand-over."""
    return [
        finding.check.removeprefix("handover.")
        for finding in diagnosis.findings
        if finding.severity >= worst and finding.check.startswith("handover.")
    ]


def manager_at(*directories: Path) -> LogManager:
    """Open a manager with one partition of each internal topic."""
    from tests.support.managers import ONE_PARTITION

    return manual_manager(*directories, config=ONE_PARTITION)


@pytest.fixture(name="data")
def fixture_data(tmp_path: Path) -> Path:
    """A data directory with records, positions and transactions, closed cleanly."""
    data = tmp_path / "data"
    data.mkdir()
    with manager_at(data) as manager:
        manager.create_topic("orders", 2)
        append_texts(manager, "orders", 0, "a", "b")
        with manager.producer(transactional_id="mover") as producer:
            producer.begin_transaction()
            producer.send("orders", b"c", partition=1)
            producer.commit_transaction()
        with manager.consumer("group") as consumer:
            consumer.commit({TopicPartition("orders", 0): 1})
    ids: dict[str, uuid.UUID] = {}
    for path in sorted(data.iterdir()):
        if path.is_dir():
            topic_id = ids.setdefault(path.name.rpartition("-")[0], uuid.uuid4())
            write_partition_metadata(PosixFileSystem(), path, topic_id)
    return data


def test_directory_that_is_ready_has_notes_only(data: Path) -> None:
    """INT-2, INT-3: closed, with ids, epoch 0, all transactions complete."""
    diagnosis = judged(data)
    assert [] == found(diagnosis), diagnosis.findings
    assert ["own_files"] == found(diagnosis, Severity.NOTE)
    assert () == diagnosis.unseen


def test_directory_without_marker_or_with_a_writer_is_not_ready(data: Path) -> None:
    """A broker would recover it by its rules, or not start."""
    (data / ".kafka_cleanshutdown").unlink()
    assert ["unclean"] == found(judged(data))
    with manager_at(data):
        assert ["lock"] == found(judged(data))


def test_internal_topics_with_another_number_of_partitions_are_found(data: Path) -> None:
    """INT-2: a broker would use another partition for each name."""
    diagnosis = judged(data, broker=HandOver())
    assert ["internal_topics"] * 2 == found(diagnosis)
    text = " ".join(finding.remedy for finding in diagnosis.findings)
    assert "offsets.topic.num.partitions=1" in text
    assert "transaction.state.log.num.partitions=1" in text


def test_leader_epochs_above_the_controllers_are_found(data: Path) -> None:
    """INT-3: in batches, in the checkpoint, and in positions of groups; not after lowering them."""
    with manager_at(data) as manager:
        manager.log("orders", 0).truncate_to(1)
        append_texts(manager, "orders", 0, "b")
        with manager.consumer("group") as consumer:
            consumer.commit({TopicPartition("orders", 0): CommittedOffset(1, "", 1)})
    assert ["leader_epochs", "positions"] == found(judged(data))
    assert [] == found(judged(data, broker=HandOver(1, 1, 1)))
    with manager_at(data) as manager:
        manager.lower_leader_epochs()
    assert [] == found(judged(data))


def test_epoch_in_the_checkpoint_only_is_found(data: Path) -> None:
    """INT-3: a session without appends has written it."""
    (data / "orders-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 2\n")
    assert ["leader_epochs"] == found(judged(data))


@pytest.mark.parametrize(
    ("name", "severity"),
    [
        ("00000000000000000000.log.swap", Severity.ERROR),
        ("00000000000000000009.log.covered", Severity.ERROR),
        ("00000000000000000000.log.cleaned", Severity.WARNING),
    ],
)
def test_leftovers_of_replacements_are_found(data: Path, name: str, severity: Severity) -> None:
    """INT-1: a broker has other rules for them."""
    (data / "orders-0" / name).write_bytes(b"anything")
    diagnosis = judged(data)
    assert ["leftovers"] == found(diagnosis)
    assert severity is diagnosis.findings[0].severity


def test_missing_or_different_topic_ids_are_found(data: Path, tmp_path: Path) -> None:
    """INT-2: between directories too; the latter also without --handover."""
    other = tmp_path / "other"
    shutil.copytree(data, other, ignore=shutil.ignore_patterns("orders-0", "__*", "meta*"))
    shutil.move(other / "orders-1", other / "orders-2")
    (data / "orders-0" / "partition.metadata").unlink()
    assert ["topic_ids"] == found(judged(data))
    write_partition_metadata(PosixFileSystem(), other / "orders-2", uuid.uuid4())
    plain = examine_directories([data, other], machine=MadeUpMachine(), clock=ManualClock())
    findings = [each for each in plain.findings if each.check == "partition.metadata.agreement"]
    assert 1 == len(findings)
    assert Severity.ERROR is findings[0].severity


def test_unfinished_transactions_are_found(data: Path) -> None:
    """INT-2: a decided transaction without markers, and a transaction without a coordinator."""
    record = TransactionRecord(7, 0, 1000, TransactionState.PREPARE_COMMIT)
    with manager_at(data) as manager:
        log = manager.log("__transaction_state", 0)
        log.append([Record(key=encode_key("undecided"), value=encode_value(record))])
    assert ["transactions"] == found(judged(data))
    with manager_at(data) as manager:
        batch = encoded([Produced(1234, transactional=True)])
        manager.log("orders", 0).append_batches(batch, origin=AppendOrigin.CLIENT)
    diagnosis = judged(data)
    assert {"transactions", "open_transactions"} == set(found(diagnosis))
    assert "undecided" in " ".join(each.seen for each in diagnosis.findings)


def test_stray_and_deleted_directories_are_found(data: Path) -> None:
    """A broker treats them by its rules."""
    (data / "orders-0").rename(data / f"orders-0.{uuid.uuid4().hex}-stray")
    assert ["directories"] == found(judged(data))


def test_old_formats_and_damage_are_reported(data: Path) -> None:
    """Old formats are a warning; records after damage were not examined."""
    with manager_at(data) as manager:
        end = manager.log("orders", 0).log_end_offset
        manager.log("orders", 0).append_batches(chapter(1, 0, [end]).data, assign_offsets=False)
    assert ["formats"] == found(judged(data))
    path = data / "orders-0" / "00000000000000000000.log"
    content = bytearray(path.read_bytes())
    content[16] = 9
    path.write_bytes(content)
    assert any("orders-0" in each for each in judged(data).unseen)


def test_segment_with_offsets_of_more_than_32_bits_is_found(data: Path) -> None:
    """A broker does not open it."""
    with manual_log(data / "orders-0") as log:
        log.append(numbered(log.log_end_offset, 1))
    source = data / "orders-0" / "00000000000000000000.log"
    content = bytearray(source.read_bytes())
    content[0:8] = (2**33).to_bytes(8, "big")
    source.write_bytes(content)
    assert "offsets" in found(judged(data))


def test_command_has_the_findings_as_text_and_json(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 1 with an error, 0 with notes; the numbers of partitions are options."""
    monkeypatch.setattr(examine, "LocalMachine", MadeUpMachine)
    arguments = ["doctor", str(data), "--handover", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert 1 == result.exit_code
    names = {finding["check"] for finding in json.loads(result.stdout)["findings"]}
    assert "handover.internal_topics" in names
    result = CliRunner().invoke(
        app, [*arguments[:-1], "--offsets-partitions", "1", "--transaction-partitions", "1"]
    )
    assert "handover.internal_topics" not in result.stdout
    assert "handover.own_files" in result.stdout
