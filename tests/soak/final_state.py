"""Judgement of a data directory after the end of a run, by a read-only manager."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kafkalog import LogManager, TopicPartition
from tests.soak.numbered import OrderJudge, missing_records, record_value

__all__ = ["judge_accounts", "judge_directory"]

ACCOUNTS = "accounts"


def judge_directory(
    directory: Path,
    acknowledged: Mapping[str, int],
    active: Collection[str],
    accounts: Sequence[int] = (),
) -> tuple[list[str], int]:
    """
    Read everything that is in a directory, and compare it with what was acknowledged.

    Records below the start of a log were deleted by retention, so the first record of a client may
    have any number there. All others must follow each other, up to the last acknowledged one.

    Args:
        directory: the data directory, which no process writes.
        acknowledged: by client, the number of records that were acknowledged.
        active: clients that wrote up to the end; retention may have deleted all records of others.
        accounts: by account, the acknowledged version in the compacted topic.

    Returns:
        violations, and the number of records that were read.
    """
    judge, last = OrderJudge(), dict[int, bytes]()
    with LogManager([directory], read_only=True) as manager:
        for topic, partition in manager.partitions():
            log, where = manager.log(topic, partition), TopicPartition(topic, partition)
            if topic == ACCOUNTS:
                for record in log.records():
                    last[int(record.key or b"-1")] = record.value or b""
            elif not topic.startswith("__"):
                if log.log_start_offset > 0:
                    judge.allow_gap(where)
                records = log.records(isolation="read_committed")
                judge.read(where, (record.value for record in records))
    found, present = list(judge.violations), judge.next_numbers
    found += [f"{name} has no record any more" for name in sorted({*active} - {*present})]
    expected = {name: count for name, count in acknowledged.items() if name in present}
    found += missing_records(expected, present)
    return found + judge_accounts(accounts, last), judge.record_count + len(last)


def judge_accounts(acknowledged: Sequence[int], last: Mapping[int, bytes]) -> list[str]:
    """
    Compare the last value of each key of the compacted topic with the acknowledged version.

    One later version may be there, whose answer did not arrive.
    """
    found = []
    for account, version in enumerate(acknowledged):
        allowed = {record_value(f"account-{account}", version + more) for more in (0, 1)}
        value = last.get(account, b"")
        if version and value not in allowed:
            found.append(f"account {account} must have version {version}, got {value[:40]!r}")
    return found
