"""Read-only reader of a soak in a separate process: judges each record when it is durable.

    python -m tests.soak.follower DIRECTORY STATE

It follows all numbered topics with `durable=True`. STATE has its positions and what it has judged;
it is read at the start and written at the end (SIGTERM), so that a later process continues. Every
second a line of JSON on the standard output reports the next number of each client.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog import CommittedOffset, LostRecords, TopicPartition
from tests.soak.numbered import OrderJudge

TOPICS = ("events", "orders", "transfers")
REPORT_SECONDS = 1.0


def main() -> None:
    """Follow until SIGTERM."""
    directory, path = Path(sys.argv[1]), Path(sys.argv[2])
    state: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    judge = OrderJudge(state.get("next_numbers"), state.get("records", 0))
    start: Any = "start"
    if "positions" in state:
        start = {
            TopicPartition(topic, partition): CommittedOffset(offset, leader_epoch=epoch)
            for topic, partition, offset, epoch in state["positions"]
        }
    lost: list[str] = []

    def on_lost(found: LostRecords) -> None:
        lost.append(str(found))
        judge.allow_gap(found.partition)

    def report() -> None:
        line = {
            "next_numbers": judge.next_numbers,
            "records": judge.record_count,
            "violations": judge.violations + lost[:10],
        }
        print(json.dumps(line), flush=True)

    follower = kafkalog.follow(
        directory, TOPICS, start=start, durable=True, isolation="read_committed", on_lost=on_lost
    )
    ended: list[int] = []

    def end(number: int, frame: object) -> None:
        ended.append(number)
        follower.wakeup()

    signal.signal(signal.SIGTERM, end)
    due = 0.0
    with follower:
        while not ended:
            for partition, records in follower.poll(int(REPORT_SECONDS * 1000)).items():
                judge.read(partition, [record.value for record in records])
            if time.monotonic() >= due:
                report()
                due = time.monotonic() + REPORT_SECONDS
        positions = [
            [*partition, each.offset, each.leader_epoch]
            for partition, each in follower.positions().items()
        ]
    state = {
        "positions": positions,
        "next_numbers": judge.next_numbers,
        "records": judge.record_count,
    }
    path.write_text(json.dumps(state))
    report()


if __name__ == "__main__":
    main()
