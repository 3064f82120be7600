"""View of `kafkalog.read_records`: a line for each record."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from typing import Final

from kafkalog.cli.parsers import (
    add_form_arguments,
    add_partitions,
    add_range_arguments,
    make_parser,
)
from kafkalog.cli.record_lines import RecordWriter, parse_bytes, report_range
from kafkalog.cli.reports import Report
from kafkalog.cli.units import parse_time
from kafkalog.clock import SystemClock
from kafkalog.errors import ConfigError, KafkaLogError
from kafkalog.files.posix import PosixFileSystem
from kafkalog.inspection.record_reading import read_records, select_found
from kafkalog.inspection.targets import PartitionTarget

__all__ = ["find_targets", "read_times", "run"]

_DESCRIPTION: Final = """\
Print records: offset, time, key, value and headers.

Nothing is changed or locked, and a broker may be running. Corrupt ranges are
reported and skipped. Partitions are printed one after the other.

  kafkalog cat /data/orders-0 --last 10            the last ten
  kafkalog cat orders@/data --since 2h             a topic, the last two hours
  kafkalog cat /data/orders-0 --from 500 --max 20  twenty from an offset on
  kafkalog cat orders@/data --key customer-7       those of a key
"""
_EPILOG: Final = """\
Times: ISO (2026-11-28T12:00, in UTC), a duration before now (2h, 1d12h), or ms
since 1970.
Exit status: 0 success, 1 damage was found, 2 usage, 3 a path failed.
"""


def run(arguments: Sequence[str]) -> int:
    """Run the verb; return the exit status."""
    options = _parser().parse_args(arguments)
    since, until = read_times(options)
    if options.last is not None and options.last < 0:
        raise ConfigError(f"--last must be >= 0, got {options.last}")
    key = parse_bytes(options.key)
    report = Report("cat", as_json=options.json)
    found = find_targets(options.paths, options.partition, report)
    writer = RecordWriter(
        options.form, as_json=options.json, has_partition=len(found) > 1, is_full=options.full
    )
    left = options.max
    for each in found:
        if left == 0:
            break
        try:
            for partition, record in read_records(
                each.path,
                start=options.start,
                end=options.end,
                last=options.last,
                limit=left,
                since=since,
                until=until,
                key=key,
                isolation="read_committed" if options.committed else "read_uncommitted",
                on_damage=partial(report_range, report),
            ):
                writer.write(partition, record)
                if left is not None:
                    left -= 1
        except KafkaLogError as error:
            report.add_failure(error)
    return report.finish()


def read_times(options: Namespace) -> tuple[int | None, int | None]:
    """Return the times of --since and --until; check the numbers of the range."""
    for flag, number in (("--from", options.start), ("--to", options.end), ("--max", options.max)):
        if number is not None and number < 0:
            raise ConfigError(f"{flag} must be >= 0, got {number}")
    now_ms = SystemClock().now_ms()
    since, until = (
        None if text is None else parse_time(text, now_ms=now_ms)
        for text in (options.since, options.until)
    )
    return since, until


def find_targets(
    paths: Sequence[str], numbers: Sequence[int] | None, report: Report
) -> list[PartitionTarget]:
    """Return the partitions of all paths; a path that fails is reported."""
    filesystem, found = PosixFileSystem(), []
    for path in paths:
        try:
            found += select_found(filesystem, path, numbers)
        except KafkaLogError as error:
            report.add_failure(error)
    return list(dict.fromkeys(found))


def _parser() -> ArgumentParser:
    parser = make_parser("cat", _DESCRIPTION, _EPILOG)
    add_partitions(parser)
    add_range_arguments(parser)
    parser.add_argument("--last", type=int, metavar="N", help="the last of each partition")
    add_form_arguments(parser)
    return parser
