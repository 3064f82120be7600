"""View of `kafkalog.tail_records`: the last records, then each record as it is appended."""

from __future__ import annotations

import select
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalog.cli.cat.command import find_targets
from kafkalog.cli.parsers import add_form_arguments, add_partitions, make_parser
from kafkalog.cli.record_lines import RecordWriter, parse_bytes, report_range
from kafkalog.cli.reports import Report
from kafkalog.errors import ConfigError
from kafkalog.inspection.tailing import tail_records

if TYPE_CHECKING:
    from kafkalog.clients.consumer import LostRecords

__all__ = ["run"]

_DESCRIPTION: Final = """\
Print the last records of partitions; with -f also those that are appended,
until Ctrl-C.

Nothing is changed or locked, and a broker may be running.

  kafkalog tail /data/orders-0        the last ten records
  kafkalog tail -f -n 0 orders@/data  new records of all partitions of a topic
"""
_EPILOG: Final = "Exit status: 0 success, 1 damage was found, 2 usage, 3 failure, 130 Ctrl-C."


def run(arguments: Sequence[str]) -> int:
    """Run the verb; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.last < 0:
        raise ConfigError(f"-n must be >= 0, got {options.last}")
    key = parse_bytes(options.key)
    report = Report("tail", as_json=options.json)
    found = find_targets(options.paths, options.partition, report)
    if not found and report.status:
        return report.finish()
    writer = RecordWriter(
        options.form, as_json=options.json, has_partition=len(found) > 1, is_full=options.full
    )
    for partition, record in tail_records(
        [each.path for each in found],
        last=options.last,
        follow=options.follow,
        key=key,
        isolation="read_committed" if options.committed else "read_uncommitted",
        on_damage=partial(report_range, report),
        on_failure=report.add_failure,
        on_lost=partial(_report_lost, report),
        on_idle=_flush,
    ):
        writer.write(partition, record)
    return report.finish()


def _report_lost(report: Report, lost: LostRecords) -> None:
    report.add_damage(
        f"{lost.partition} does not have offset {lost.requested_offset} any more; continues at"
        f" {lost.resumed_offset}",
        topic=lost.partition.topic,
        partition=lost.partition.partition,
        requested_offset=lost.requested_offset,
        resumed_offset=lost.resumed_offset,
    )


def _flush() -> None:
    """Write what is buffered; exit with 0 if the reader of the pipe is gone."""
    sys.stdout.flush()
    try:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if any(events & select.POLLERR for _, events in poll.poll(0)):
            raise SystemExit(0)
    except (OSError, ValueError, AttributeError):
        return  # not a stream of the system


def _parser() -> ArgumentParser:
    parser = make_parser("tail", _DESCRIPTION, _EPILOG)
    add_partitions(parser)
    parser.add_argument(
        "-n", "--last", type=int, default=10, metavar="N", help="of each partition; 10"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more records")
    add_form_arguments(parser)
    return parser
