"""`kafkalog dump` on files of real brokers: the lines of Kafka's own dump, and the manifests."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kafkalog.cli.app import app
from tests.support.golden import (
    CLEAN,
    CODECS,
    SWAP,
    TIMESTAMP_TYPES,
    UNCLEAN,
    BatchFact,
    Manifest,
    RecordFact,
    all_partitions,
    data_directory,
    partitions,
    unchanged,
)


def run(*arguments: str | Path) -> list[str]:
    """Run the command, which must find no damage, and return the lines of its output."""
    result = CliRunner().invoke(app, ["dump", *map(str, arguments)])
    assert 0 == result.exit_code, result.output
    return result.stdout.splitlines()


def objects(*arguments: str | Path) -> Iterator[dict[str, Any]]:
    """Run the command with --json and yield the objects of its output."""
    for line in run("--json", *arguments):
        yield json.loads(line)


def of_kind(kind: str, found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for each in found if each["kind"] == kind]


def by_file(found: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Sort facts by the name of the file they belong to."""
    files: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        if each["kind"] == "file":
            current = files.setdefault(Path(each["path"]).name, [])
        else:
            current.append(each)
    return files


@pytest.mark.parametrize("partition", partitions(CLEAN))
def test_dump_clean_partition_equals_kafkas_own_dump(partition: str) -> None:
    """Every line of Kafka's DumpLogSegments is there, in its order within each file."""
    manifest = Manifest(CLEAN, partition)
    lines = run(manifest.directory)
    prefix = f"{manifest.directory.parent}/"
    ours = sections(line.replace(prefix, "") for line in lines)
    # Kafka's tool has a line for an index without entries; kafkalog has none.
    theirs = sections(
        line for line in manifest.dump().splitlines() if not line.endswith(" is empty.")
    )

    assert theirs
    for name, expected in theirs.items():
        assert expected == ours[name]


@pytest.mark.parametrize("partition", partitions(UNCLEAN))
def test_dump_unclean_partition_has_every_batch_of_kafkas_own_dump(partition: str) -> None:
    """With preallocated indexes, the batches are those of Kafka's tool."""
    manifest = Manifest(UNCLEAN, partition)
    lines = run(manifest.directory)
    expected = [line for line in manifest.dump().splitlines() if line.startswith("baseOffset")]

    ours = sections(line.replace(f"{manifest.directory.parent}/", "") for line in lines)
    live = [
        line
        for name, content in sorted(ours.items())
        if name.endswith(".log")
        for line in content
        if line.startswith("baseOffset")
    ]
    assert expected == live


@pytest.mark.parametrize(("data_set", "partition"), all_partitions())
def test_dump_json_equals_the_manifest(data_set: str, partition: str) -> None:
    """Batches and records of the live segments, every field of them."""
    manifest = Manifest(data_set, partition)
    with unchanged(manifest.directory):
        files = by_file(objects("--records", "--no-others", manifest.directory))
    logs = [files[name] for name in sorted(files) if name.endswith(".log")]
    found = [each for log in logs for each in log]

    expected_batches = [batch_object(fact) for fact in manifest.batches()]
    assert expected_batches == of_kind("batch", found)
    expected_records = [record_object(fact) for fact in manifest.records()]
    assert expected_records == [shortened(each) for each in of_kind("record", found)]


@pytest.mark.parametrize(("data_set", "partition"), all_partitions())
def test_dump_json_index_entries_equal_the_manifest(data_set: str, partition: str) -> None:
    """Entries of all three kinds of index, up to the zeros of a preallocated file."""
    manifest = Manifest(data_set, partition)
    files = by_file(objects("--no-batches", manifest.directory))
    for segment in manifest.summary.segments:
        stem = segment.segment.removesuffix(".log")
        assert list(segment.offset_index) == [
            (each["offset"], each["position"]) for each in files[f"{stem}.index"]
        ]
        assert list(segment.time_index) == [
            (each["timestamp"], each["offset"]) for each in files[f"{stem}.timeindex"]
        ]
        assert [
            (fact.producer_id, fact.first_offset, fact.last_offset, fact.last_stable_offset)
            for fact in segment.aborted_transactions
        ] == [
            tuple(
                each[name]
                for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")
            )
            for each in files.get(f"{stem}.txnindex", [])
        ]


@pytest.mark.parametrize(("data_set", "partition"), all_partitions())
def test_dump_json_producer_snapshots_equal_the_manifest(data_set: str, partition: str) -> None:
    """Every field of every producer in every snapshot."""
    manifest = Manifest(data_set, partition)
    files = by_file(objects("--no-batches", manifest.directory))
    for name, producers in manifest.summary.producer_snapshots.items():
        assert [
            (
                fact.producer_id,
                fact.producer_epoch,
                fact.coordinator_epoch,
                fact.last_timestamp,
                fact.last_sequence,
                fact.last_offset,
                fact.offset_delta,
                fact.current_txn_first_offset,
            )
            for fact in producers
        ] == [tuple(each.values())[1:] for each in files[name]]


@pytest.mark.parametrize(("data_set", "partition"), all_partitions())
def test_dump_json_epochs_and_topic_id_equal_the_manifest(data_set: str, partition: str) -> None:
    """The two small files of a partition directory."""
    summary = Manifest(data_set, partition).summary
    found = list(objects("--no-batches", Manifest(data_set, partition).directory))

    assert list(summary.leader_epochs) == [
        (each["epoch"], each["start_offset"]) for each in of_kind("leader_epoch", found)
    ]
    ids = [each["topic_id"] for each in of_kind("partition_metadata", found)]
    assert ([] if summary.topic_id is None else [summary.topic_id]) == ids


@pytest.mark.parametrize("data_set", [CLEAN, UNCLEAN, SWAP])
def test_dump_data_directory_shows_checkpoints_and_every_partition(data_set: str) -> None:
    """The data directory's own files come first, then its partitions."""
    directory = data_directory(data_set)
    with unchanged(directory):
        found = list(objects("--no-batches", directory))
    files = by_file(found)

    for partition in partitions(data_set):
        summary = Manifest(data_set, partition).summary
        topic, _, number = partition.rpartition("-")
        entry = {"topic": topic, "partition": int(number) if number.isdigit() else -1}
        for name, offset in (
            ("recovery-point-offset-checkpoint", summary.checkpoint_recovery_point),
            ("replication-offset-checkpoint", summary.checkpoint_high_watermark),
            ("log-start-offset-checkpoint", summary.checkpoint_log_start_offset),
            ("cleaner-offset-checkpoint", summary.checkpoint_cleaner_offset),
        ):
            if offset is not None:
                expected = {"kind": "checkpoint_entry", **entry, "offset": offset}
                assert expected in files[name]
    paths = [Path(each["path"]).parent.name for each in of_kind("file", found)]
    assert set(partitions(data_set)) <= set(paths)
    assert "data" == paths[0]


def test_dump_text_of_records_shows_keys_values_and_markers() -> None:
    """UTF-8 is shown unchanged, control records in words."""
    plain = run("-r", Manifest(CLEAN, "plain-small-0").directory / f"{0:020}.log")
    expected = (
        "| offset: 0 CreateTime: 1700000073470 keySize: 3 valueSize: 57 sequence: -1 "
        "headerKeys: [] key: k13 payload: umber kelp delta yarrow xenon umber "
    )
    assert plain[3].startswith(expected)
    transactions = run("-r", Manifest(CLEAN, "transactions-0").directory / f"{0:020}.log")
    marker = (
        "| offset: 16 CreateTime: 1795248087798 keySize: 4 valueSize: 6 sequence: -1 "
        "headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 0"
    )
    assert marker in transactions
    metadata = run("-r", Manifest(CLEAN, "__cluster_metadata-0").directory)
    assert any("KRaftVoters {" in line for line in metadata)
    assert any("SnapshotHeader {" in line for line in metadata)


def test_dump_summary_has_the_requested_kinds() -> None:
    """Without `--records` the summary does not count records."""
    segment = Manifest(CLEAN, "plain-small-0").directory / f"{0:020}.log"

    batches = CliRunner().invoke(app, ["dump", str(segment)]).stderr.strip()
    records = CliRunner().invoke(app, ["dump", "-r", "--no-batches", str(segment)]).stderr.strip()

    shown = run("--json", "-r", segment)
    batch_count = len(of_kind("batch", map(json.loads, shown)))
    record_count = len(of_kind("record", map(json.loads, shown)))
    assert f"1 file, {batch_count} batches; no damage" == batches
    assert f"1 file, {record_count} records; no damage" == records


def sections(lines: Iterable[str]) -> dict[str, list[str]]:
    """Sort lines of text by the file they belong to."""
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("Dumping "):
            current = found.setdefault(line.removeprefix("Dumping "), [])
        else:
            current.append(line.rstrip())
    return found


def batch_object(fact: BatchFact) -> dict[str, Any]:
    return {
        "kind": "batch",
        "position": fact.position,
        "size_bytes": fact.batch_size,
        "base_offset": fact.base_offset,
        "last_offset": fact.last_offset,
        "record_count": fact.header_record_count,
        "base_timestamp": fact.base_timestamp,
        "max_timestamp": fact.max_timestamp,
        "timestamp_type": TIMESTAMP_TYPES[fact.timestamp_type],
        "codec": CODECS[fact.codec],
        "magic": fact.magic,
        "crc": fact.crc,
        "leader_epoch": fact.leader_epoch,
        "producer_id": fact.producer_id,
        "producer_epoch": fact.producer_epoch,
        "base_sequence": fact.base_sequence,
        "last_sequence": fact.last_sequence,
        "is_transactional": fact.is_transactional,
        "is_control": fact.is_control,
        "delete_horizon_ms": fact.delete_horizon_ms,
    }


def record_object(fact: RecordFact) -> dict[str, Any]:
    expected = {
        "kind": "record",
        "offset": fact.offset,
        "timestamp_ms": fact.timestamp_ms,
        "timestamp_type": TIMESTAMP_TYPES[fact.timestamp_type],
        "sequence": fact.sequence,
        "key": encoded(fact.key),
        "value": encoded(fact.value) if fact.value_sha256 is None else fact.value_sha256,
        "headers": [[name, encoded(value)] for name, value in fact.headers],
    }
    if fact.is_control:
        expected |= {"control_type": fact.control_type, "control_value": fact.control_value}
    return expected


def shortened(record: dict[str, Any]) -> dict[str, Any]:
    """Put the hash in place of a value that the manifests have only the hash of."""
    value = None if record["value"] is None else base64.b64decode(record["value"])
    if value is not None and len(value) > 256:
        return {**record, "value": hashlib.sha256(value).hexdigest()}
    return record


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
