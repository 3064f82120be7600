"""View of `kafkalog.list_partitions`: a table that fits the terminal, or a JSON object a line."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from kafkalog.cli.columns import TableColumn, output_width, table_lines
from kafkalog.cli.parsers import make_parser
from kafkalog.cli.reports import Report
from kafkalog.cli.units import parse_size, size_text, time_text
from kafkalog.errors import KafkaLogError
from kafkalog.inspection.listing import ListedProblem, PartitionListing, list_partitions

__all__ = ["run"]

_DESCRIPTION: Final = """\
List partitions: size, segments, offsets, times, codec, leader epoch, settings
and health.

Names, sizes and the headers of the first and the last batch are read. Nothing
is changed or locked, and a broker may be running. Columns that do not fit the
terminal are left out.

  kafkalog ls /data                   all partitions of a data directory
  kafkalog ls /disk1 /disk2 --topics  a row for each topic of two of them
  kafkalog ls /data --sort size       the largest first
  kafkalog ls orders@/data            the partitions of one topic
"""
_EPILOG: Final = "Exit status: 0 success, 1 a partition is damaged, 2 usage, 3 a path failed."

# Key of --sort -> its value; None last.
_KEYS: Final[dict[str, Callable[[PartitionListing], int | None]]] = {
    "size": lambda each: each.size_bytes,
    "segments": lambda each: each.segment_count,
    "offsets": lambda each: _offset_count(each),
    "start": lambda each: each.start_offset,
    "end": lambda each: each.end_offset,
    "first": lambda each: each.first_timestamp_ms,
    "last": lambda each: each.last_timestamp_ms,
}


def run(arguments: Sequence[str]) -> int:
    """Run the verb; return the exit status."""
    options = _parser().parse_args(arguments)
    smallest = parse_size(options.min_size) if options.min_size else 0
    report = Report("ls", as_json=options.json)
    found: list[PartitionListing] = []
    for path in options.paths or ["."]:
        try:
            found += list_partitions(path, topics=options.topic)
        except KafkaLogError as error:
            report.add_failure(error)
    shown = [each for each in found if each.size_bytes >= smallest]
    if options.damaged:
        shown = [each for each in shown if each.problems]
    _sort(shown, options.sort, is_reversed=options.reverse)
    if options.json:
        _write_json(shown, by_topic=options.topics)
    elif found or not report.status:
        _write_table(shown, by_topic=options.topics)
    for problem in dict.fromkeys(problem for each in found for problem in each.problems):
        report.add_damage(_problem_text(problem), **_problem_fields(problem))
    return report.finish()


def _parser() -> ArgumentParser:
    parser = make_parser("ls", _DESCRIPTION, _EPILOG)
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="data or partition directories; the current one"
    )
    parser.add_argument(
        "--topic", action="append", default=[], metavar="GLOB", help="only these topics, as 'a*'"
    )
    parser.add_argument("--min-size", metavar="SIZE", help="only from this size on, as 64M")
    parser.add_argument(
        "--damaged", action="store_true", help="only partitions with a file that cannot be used"
    )
    parser.add_argument("--topics", action="store_true", help="a row for each topic")
    parser.add_argument(
        "--sort",
        choices=["name", *_KEYS],
        default="name",
        metavar="KEY",
        help=f"name, {', '.join(_KEYS)}; the largest first",
    )
    parser.add_argument("-r", "--reverse", action="store_true", help="in reverse order")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    return parser


def _sort(found: list[PartitionListing], key: str, *, is_reversed: bool) -> None:
    """Sort by a key, the largest first; partitions with equal values stay in order of names."""
    found.sort(key=lambda each: (each.topic_partition, each.path))
    if key != "name":
        found.sort(key=lambda each: _rank(_KEYS[key](each)), reverse=True)
    if is_reversed:
        found.reverse()


def _rank(number: int | None) -> int:
    return -1 if number is None else number


def _offset_count(listing: PartitionListing) -> int | None:
    if listing.end_offset is None or listing.start_offset is None:
        return None
    return listing.end_offset - listing.start_offset


# ------------------------------------------------------------------------------------------- JSON


def _write_json(found: Iterable[PartitionListing], *, by_topic: bool) -> None:
    objects = map(_topic_fields, _by_topic(found)) if by_topic else map(_partition_fields, found)
    for fields in objects:
        sys.stdout.write(json.dumps(fields, separators=(",", ":")) + "\n")


def _partition_fields(listing: PartitionListing) -> dict[str, Any]:
    return {
        "kind": "partition",
        "topic": listing.topic_partition.topic,
        "partition": listing.topic_partition.partition,
        "path": str(listing.path),
        "state": listing.state.name.lower(),
        "health": listing.health,
        "size_bytes": listing.size_bytes,
        "disk_bytes": listing.disk_bytes,
        "segment_count": listing.segment_count,
        "start_offset": listing.start_offset,
        "end_offset": listing.end_offset,
        "first_timestamp_ms": listing.first_timestamp_ms,
        "last_timestamp_ms": listing.last_timestamp_ms,
        "codec": listing.codec,
        "leader_epoch": listing.leader_epoch,
        "settings": dict(listing.settings),
    }


def _problem_text(problem: ListedProblem) -> str:
    where = "" if problem.position is None else f" at position {problem.position}"
    return f"{problem.path}{where}: {problem.message}" if where else problem.message


def _problem_fields(problem: ListedProblem) -> dict[str, Any]:
    return {
        "path": str(problem.path),
        "position": problem.position,
        "message": problem.message,
    }


# ----------------------------------------------------------------------------------------- tables

_COLUMNS: Final = (
    TableColumn("PARTITION"),
    TableColumn("SIZE", is_number=True),
    TableColumn("SEGMENTS", 1, is_number=True),
    TableColumn("START", is_number=True),
    TableColumn("END", is_number=True),
    TableColumn("FIRST", 4),
    TableColumn("LAST", 2),
    TableColumn("CODEC", 3),
    TableColumn("EPOCH", 5, is_number=True),
    TableColumn("HEALTH"),
    TableColumn("SETTINGS", 7),
    TableColumn("DIRECTORY", 6),
)
_TOPIC_COLUMNS: Final = (
    TableColumn("TOPIC"),
    TableColumn("PARTITIONS", is_number=True),
    TableColumn("SIZE", is_number=True),
    TableColumn("SEGMENTS", 1, is_number=True),
    TableColumn("OFFSETS", is_number=True),
    TableColumn("FIRST", 3),
    TableColumn("LAST", 2),
    TableColumn("HEALTH"),
)


def _write_table(found: Sequence[PartitionListing], *, by_topic: bool) -> None:
    columns = _TOPIC_COLUMNS if by_topic else _COLUMNS
    if not by_topic and len({each.path.parent for each in found}) > 1:
        # Shown before all others, since two directories may have partitions of one name.
        columns = (*_COLUMNS[:-1], _COLUMNS[-1]._replace(rank=1))
    rows = [_topic_row(each) for each in _by_topic(found)] if by_topic else list(map(_row, found))
    for line in table_lines(columns, rows, output_width()):
        sys.stdout.write(line + "\n")


def _row(listing: PartitionListing) -> list[str]:
    return [
        str(listing.topic_partition),
        size_text(listing.size_bytes),
        str(listing.segment_count),
        _number(listing.start_offset),
        _number(listing.end_offset),
        time_text(listing.first_timestamp_ms),
        time_text(listing.last_timestamp_ms),
        listing.codec or "-",
        _number(listing.leader_epoch),
        listing.health,
        " ".join(f"{key}={value}" for key, value in sorted(listing.settings.items())) or "-",
        str(listing.path.parent),
    ]


def _number(number: int | None) -> str:
    return "-" if number is None else str(number)


def _by_topic(found: Iterable[PartitionListing]) -> list[list[PartitionListing]]:
    """Return the partitions of each topic, in the order of their first one."""
    topics: dict[str, list[PartitionListing]] = {}
    for each in found:
        topics.setdefault(each.topic_partition.topic, []).append(each)
    return list(topics.values())


def _topic_fields(partitions: Sequence[PartitionListing]) -> dict[str, Any]:
    firsts = [each.first_timestamp_ms for each in partitions]
    lasts = [each.last_timestamp_ms for each in partitions]
    return {
        "kind": "topic",
        "topic": partitions[0].topic_partition.topic,
        "partition_count": len(partitions),
        "health": _worst_health(partitions),
        "size_bytes": sum(each.size_bytes for each in partitions),
        "disk_bytes": sum(each.disk_bytes for each in partitions),
        "segment_count": sum(each.segment_count for each in partitions),
        "offset_count": sum(_offset_count(each) or 0 for each in partitions),
        "first_timestamp_ms": min((each for each in firsts if each is not None), default=None),
        "last_timestamp_ms": max((each for each in lasts if each is not None), default=None),
    }


def _worst_health(partitions: Sequence[PartitionListing]) -> str:
    found = {each.health for each in partitions}
    ranks = ("damaged", "stray", "moving", "deleted", "ok", "empty")
    return next(each for each in ranks if each in found)


def _topic_row(partitions: Sequence[PartitionListing]) -> list[str]:
    fields = _topic_fields(partitions)
    return [
        fields["topic"],
        str(fields["partition_count"]),
        size_text(fields["size_bytes"]),
        str(fields["segment_count"]),
        str(fields["offset_count"]),
        time_text(fields["first_timestamp_ms"]),
        time_text(fields["last_timestamp_ms"]),
        fields["health"],
    ]
