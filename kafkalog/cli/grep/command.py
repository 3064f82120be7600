"""View of `kafkalog.search_records` and `count_matches`."""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from kafkalog.cli.cat.command import find_targets, read_times
from kafkalog.cli.parsers import (
    add_form_arguments,
    add_partitions,
    add_range_arguments,
    make_parser,
)
from kafkalog.cli.record_lines import RecordWriter, parse_bytes, report_range
from kafkalog.cli.reports import Report
from kafkalog.errors import ConfigError, KafkaLogError
from kafkalog.inspection.record_reading import RecordSelection
from kafkalog.inspection.record_search import count_matches, search_records
from kafkalog.inspection.targets import PartitionTarget

__all__ = ["run"]

_DESCRIPTION: Final = """\
Print the records whose key or value has a text or matches an expression.

Nothing is changed or locked, and a broker may be running. Corrupt ranges are
reported and skipped.

  kafkalog grep refused orders@/data           in keys and values of a topic
  kafkalog grep -E '^user-[0-9]+$' --in key /data
  kafkalog grep --count refused orders@/data   numbers of each partition
  kafkalog grep -C 2 refused /data/orders-0    with two records before and after
"""
_EPILOG: Final = """\
Exit status: 0 success, also without a match; 1 damage was found, 2 usage,
3 a path failed.
"""


def run(arguments: Sequence[str]) -> int:
    """Run the verb; return the exit status."""
    options = _parser().parse_args(arguments)
    if options.context < 0:
        raise ConfigError(f"-C must be >= 0, got {options.context}")
    pattern = _pattern(options)
    fields = tuple(options.fields or ("key", "value"))
    since, until = read_times(options)
    selection = RecordSelection(
        start=options.start,
        end=options.end,
        since_ms=since,
        until_ms=until,
        key=parse_bytes(options.key),
        isolation="read_committed" if options.committed else "read_uncommitted",
    )
    report = Report("grep", as_json=options.json)
    found = find_targets(options.paths, options.partition, report)
    writer = RecordWriter(
        options.form,
        as_json=options.json,
        has_partition=len(found) > 1,
        has_mark=options.context > 0,
        is_full=options.full,
    )
    left = options.max
    for each in found:
        if left == 0:
            break
        arguments_of_both: dict[str, Any] = {
            "fields": fields,
            "ignore_case": options.ignore_case,
            "on_damage": partial(report_range, report),
        }
        try:
            if options.count:
                count = count_matches(each.path, pattern, selection=selection, **arguments_of_both)
                _write_count(each, count, as_json=options.json)
                continue
            for partition, record, is_match in search_records(
                each.path,
                pattern,
                context=options.context,
                limit=left,
                selection=selection,
                **arguments_of_both,
            ):
                writer.write(partition, record, is_match=is_match)
                if left is not None and is_match:
                    left -= 1
        except KafkaLogError as error:
            report.add_failure(error)
    return report.finish()


def _write_count(found: PartitionTarget, count: int, *, as_json: bool) -> None:
    where = found.name.topic_partition
    if as_json:
        fields = {
            "kind": "count",
            "topic": where.topic,
            "partition": where.partition,
            "path": str(found.path),
            "count": count,
        }
        sys.stdout.write(json.dumps(fields, separators=(",", ":")) + "\n")
    else:
        sys.stdout.write(f"{where}\t{count}\n")


def _pattern(options: Namespace) -> bytes | re.Pattern[bytes]:
    text: str = options.pattern
    if not text:
        raise ConfigError("the pattern must not be empty")
    if not options.regex:
        found = parse_bytes(text)
        assert found is not None
        return found
    try:
        flags = re.IGNORECASE if options.ignore_case else re.NOFLAG
        return re.compile(text.encode("utf-8", "surrogateescape"), flags)
    except (re.error, OverflowError) as error:
        raise ConfigError(f"not a regular expression: {text[:60]!r}: {error}") from None


def _parser() -> ArgumentParser:
    parser = make_parser("grep", _DESCRIPTION, _EPILOG)
    parser.add_argument("pattern", metavar="PATTERN", help="text, hex:0a0b or base64:Cgs=")
    add_partitions(parser)
    parser.add_argument(
        "-E", "--regex", action="store_true", help="a Python regular expression of bytes"
    )
    parser.add_argument(
        "--in",
        dest="fields",
        action="append",
        choices=["key", "value", "headers"],
        metavar="FIELD",
        help="key, value or headers; repeatable; key and value if not given",
    )
    parser.add_argument("-i", "--ignore-case", action="store_true", help="of ASCII letters")
    parser.add_argument(
        "-C", "--context", type=int, default=0, metavar="N", help="records before and after"
    )
    parser.add_argument("-c", "--count", action="store_true", help="only numbers of records")
    add_range_arguments(parser)
    add_form_arguments(parser)
    return parser
