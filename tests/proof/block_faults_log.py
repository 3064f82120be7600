"""The log of one stage of a block fault, in a separate process.

`python -m tests.proof.block_faults_log STAGE DIRECTORY CONTROL MARK` prints a line of JSON for each
record that was acknowledged as durable, for what is served, and for an error of the library.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import kafkalog
from kafkalog import KafkaLogError, LogConfig, Record

__all__ = ["main"]


def tell(**facts: object) -> None:
    """Print a line of JSON."""
    print(json.dumps(facts), flush=True)


def append(log: kafkalog.Log, value: str) -> None:
    """Append a record and wait until it is durable."""
    info = log.append([Record(value=value.encode())], wait="durable")
    tell(durable=info.first_offset, value=value)


def fail(directory: Path, control: Path, mark: str) -> None:
    """Append durable records, others while the disk fails their write, and let the log go."""
    log = kafkalog.open_log(directory, config=LogConfig(segment_bytes=100_000))
    for number in range(20):
        append(log, f"sound {mark[::-1]} {number} " + "s" * 300)
    # Not synced yet: neighbours of what fails.
    log.append([Record(value=b"neighbour %d" % number) for number in range(5)])
    control.write_text(f"writes {mark}")
    for _ in range(3):
        try:
            append(log, f"{mark} " * 400)
        except KafkaLogError as error:
            tell(error=type(error).__name__)
    try:
        log.close()
    except KafkaLogError as error:
        tell(error=type(error).__name__)


def recover(directory: Path, *, closes: bool) -> None:
    """Open the log on the disk that works again, append, and close or wait for the end."""
    log = kafkalog.open_log(directory, config=LogConfig(segment_bytes=100_000))
    for record in log.records():
        if record.offset < log.durable_offset:
            tell(durable=record.offset, value=(record.value or b"").decode())
    for number in range(5):
        append(log, f"after {number}")
    if closes:
        log.close()
    tell(ready=True)
    if not closes:
        sys.stdin.read()


def check(directory: Path) -> None:
    """Serve all records."""
    try:
        with kafkalog.open_log(directory) as log:
            for record in log.records(on_corrupt="skip"):
                tell(served=record.offset, value=(record.value or b"").decode())
    except KafkaLogError as error:
        tell(error=type(error).__name__)
    tell(ready=True)


def main() -> None:
    """Do one stage."""
    stage, directory, control, mark = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
    if stage == "fail":
        fail(directory, control, mark)
    elif stage == "check":
        check(directory)
    else:
        recover(directory, closes=stage == "recover-and-close")


if __name__ == "__main__":
    main()
