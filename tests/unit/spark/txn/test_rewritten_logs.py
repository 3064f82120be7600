"""Recovery of a crashed commit in logs that others have changed: no row twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog import Record
from kafkalog.cleaner.compaction import compact_log
from kafkalog.errors import CorruptStateError, KafkaLogError
from kafkalog.log.log import Log
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.txn.model import TransactionId
from kafkalog.spark.txn.transaction import SinkTransaction
from tests.support.simulated_disk import SimulatedDisk
from tests.support.sink_rig import (
    TOPIC,
    MomentDisk,
    SinkRig,
    manager_of,
    new_disk,
    stage_rows,
    stored_rows,
)

ROWS = ((0, 3), (1, 5), (0, 2))


def cleaned(log: Log) -> None:
    """Compact the log; all rows, including those of the sink, have one key."""
    log.append([Record(key=b"k", value=b"later")])
    log.reconfigure(log.config.replace(cleanup_policy="compact"))
    log.roll()
    compact_log(log, include_active=True)


def deleted(log: Log) -> None:
    """Delete all records, as retention does."""
    log.append([Record(key=b"k", value=b"later")])
    log.delete_records(log.log_end_offset)


def truncated(log: Log) -> None:
    """Truncate to the start of the crashed transaction."""
    log.truncate_to(min(4, log.log_end_offset))


CHANGES: tuple[Callable[[Log], None], ...] = (cleaned, deleted, truncated)


@pytest.fixture(scope="module")
def crashed() -> list[SimulatedDisk]:
    """Disks after crashes in a commit, from the intent on."""
    rig = SinkRig(MomentDisk.of(new_disk()))
    rig.append_foreign("first")
    disk = MomentDisk.of(rig.disk)
    other = rig.on(disk)
    files = other.stage(1, ROWS)
    disk.watch(2)
    other.transaction(1).commit(files)
    disk.keep()
    return [
        state
        for state in disk.states
        if any(path.endswith("intent.json") for path in state.snapshot())
    ]


@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_recovery_of_a_changed_log_publishes_no_row_twice(
    crashed: list[SimulatedDisk], change: Callable[[Log], None]
) -> None:
    """DUR-7: at every step of a commit; recovery completes it, or refuses with DATA_LOSS."""
    assert len(crashed) > 10
    refused = 0
    for number, state in enumerate(crashed):
        disk = state.crash()
        with manager_of(disk) as manager:
            seen: Counter[tuple[int, str]] = Counter()
            for partition in (0, 1):
                log = manager.log(TOPIC, partition)
                seen.update((partition, (each.value or b"").decode()) for each in log.records())
                change(log)
        ends = {}
        with manager_of(disk) as manager:
            ends = {part: manager.log(TOPIC, part).log_end_offset for part in (0, 1)}
        try:
            SinkRig(disk).transaction(1).recover()
        except KafkaLogSparkError as error:
            assert ErrorCode.DATA_LOSS == error.code
            refused += 1
        for partition in (0, 1):
            rows = stored_rows(disk, partition)
            again = {text for offset, text in rows if offset >= ends[partition]}
            texts = Counter(text for _offset, text in rows)
            if change is not truncated:
                before = {text for part, text in seen if part == partition}
                assert set() == again & before, f"state {number}"
            assert not [text for text, count in texts.items() if count > 1], f"state {number}"
    assert refused < len(crashed)


def test_recovery_with_all_partitions_applied_is_not_refused() -> None:
    """DUR-7: everything was published, and only the ledger entry is missing."""
    rig = SinkRig(MomentDisk.of(new_disk()))
    disk = MomentDisk.of(rig.disk)
    other = rig.on(disk)
    files = other.stage(1, ROWS)
    disk.watch(1)
    other.transaction(1).commit(files)
    states = [
        state.crash()
        for state in disk.states
        for path, content in state.snapshot().items()
        if path.endswith("intent.json") and json.loads(content or b"{}").get("applied") == 2
    ]
    assert states
    for state in states:
        with manager_of(state) as manager:
            for partition in (0, 1):
                cleaned(manager.log(TOPIC, partition))
        before = [stored_rows(state, partition) for partition in (0, 1)]
        assert TransactionId.of_query("query", 1) == SinkRig(state).transaction(1).recover()
        assert before == [stored_rows(state, partition) for partition in (0, 1)]


@pytest.mark.parametrize("kind", ["absolute", "parent", "link"])
def test_intent_with_a_path_outside_the_staging_directory_is_refused(
    tmp_path: Path, kind: str
) -> None:
    """HOST-17: a writer of the intent could otherwise move or remove any file."""
    data, decoy = tmp_path / "data", tmp_path / "decoy.log"
    sink = SinkTransaction(data, TransactionId.of_query("q", 1))
    staged = Path(stage_rows(sink, 0, ["a"], "0").path)
    decoy.write_bytes(staged.read_bytes())
    named = decoy
    if kind == "parent":
        named = staged.parent / ".." / ".." / ".." / "decoy.log"
    elif kind == "link":
        named = staged.with_name("link.log")
        named.symlink_to(decoy)
    entry = {
        "path": str(named), "topic": "t", "partition": 0, "base_offset": 0, "record_count": 1,
        "position": 0,
    }  # fmt: skip
    intent = {
        "format": 1, "transaction": {"app": "query-q", "version": 1}, "epoch": 0,
        "created_ms": 0, "entries": [entry], "emptied": [],
    }  # fmt: skip
    (data / ".kafkalog-sink-intent.json").write_text(json.dumps(intent))
    content = decoy.read_bytes()
    with pytest.raises((CorruptStateError, KafkaLogError), match="staging directory"):
        sink.recover()
    sink.staging.discard_files([str(named)])
    assert content == decoy.read_bytes()
