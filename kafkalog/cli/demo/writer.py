"""The process that the demo kills: it appends with wait="durable", and prints acknowledgements.

    python -m kafkalog.cli.demo.writer DIRECTORY

One line on standard output for each append that returned: the log end offset it made durable. It
never ends by itself: it exists to be killed during an append. The lines are all that its reader
gets to know of the log's promises.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

from kafkalog import LogConfig, Record, open_log

__all__ = ["expected_record", "write_until_killed"]

RECORDS_PER_APPEND = 50


def expected_record(number: int) -> Record:
    """Return the record that the writer appends as its `number`-th: key and value contain it."""
    # Values of many sizes, up to a few kB: the kill shall have something to cut.
    value = f"event {number} ".encode() * (1 + number * 7 % 97)
    return Record(key=f"event-{number}".encode(), value=value, timestamp_ms=number)


def write_until_killed(directory: Path, config: LogConfig) -> None:
    """Append for ever; one line to standard output for each acknowledged append."""
    with open_log(directory, config=config) as log:
        for start in itertools.count(log.log_end_offset, RECORDS_PER_APPEND):
            records = map(expected_record, range(start, start + RECORDS_PER_APPEND))
            info = log.append(records, wait="durable")
            sys.stdout.write(f"{info.last_offset + 1}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    write_until_killed(Path(sys.argv[1]), LogConfig(compression_type="zstd", retention_ms=-1))
