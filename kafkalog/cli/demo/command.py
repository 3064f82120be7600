"""Views of the demo, act by act; the acts themselves are in the other modules of the package.

Slow steps have progress bars, rows a table; a panel at the end compares promises with findings.
Without a terminal the bars are left out.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from kafkalog import Log, Record, open_log

from .broker_directory import PartitionCheck, check_partitions, find_golden, partition_names
from .crash import CrashOutcome, crash_and_recover
from .flight_log import (
    Appended,
    append_flights,
    check_look_ups,
    open_flight_log,
    read_back,
    segment_summaries,
)
from .flights import FLIGHT_COUNT, by_departure, find_flights, flights

__all__ = ["DemoDirectoryError", "DemoOptions", "run_demo"]

FLIGHTS = "flights-0"
EVENTS = "events-0"
LOOK_UPS = 500
KILL_AFTER_APPENDS = 60
LISTED_PARTITION = "plain-small-0"
LISTED_RECORDS = 8
# Noon of Independence Day in New York: a time that a person can check.
LOOK_UP_TIME_MS = int(datetime(2013, 7, 4, 16, tzinfo=UTC).timestamp() * 1000)


class DemoDirectoryError(Exception):
    """A directory for the demo is in use, or lacks what it should contain."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """
    Options of the demo.

    Attributes:
        directory: for its logs; a temporary one if None.
        keep: True to keep the logs afterwards.
        limit: number of flights; all of them if None.
        golden: a broker's data with manifests; that of the repository if None.
    """

    directory: Path | None = None
    keep: bool = False
    limit: int | None = None
    golden: Path | None = None


@dataclass(slots=True)
class Findings:
    """Lines of the final panel, and True if every promise was kept."""

    good: bool = True
    lines: list[tuple[bool | None, str]] = field(default_factory=list)

    def add(self, text: str, good: bool | None = True) -> None:
        """Add a line; `good` None is neither kept nor broken: not shown here."""
        self.lines.append((good, text))
        self.good = self.good and good is not False


def run_demo(console: Console, options: DemoOptions) -> bool:
    """
    Run all acts; return True if every check passed.

    Raises:
        MissingDataError: the flights are not installed.
        DemoDirectoryError: the directory holds an earlier demo.
        KafkaLogError: a log could not be opened or written.
    """
    archive = find_flights()
    findings = Findings()
    # The report of the recovery is shown instead: a log line would break into the bars.
    logging.getLogger("kafkalog").addHandler(logging.NullHandler())
    started = time.perf_counter()
    with working_directory(options) as directory:
        console.print(f"The logs of this demo are in [bold]{directory}[/]", highlight=False)
        with open_flight_log(directory / FLIGHTS) as log:
            events = by_departure(flights(archive, options.limit))
            appended = act_append(console, log, events, options, findings)
            act_read(console, log, appended, findings)
        act_crash(console, directory / EVENTS, findings)
        act_broker(console, options.golden or find_golden(), findings)
    show_findings(console, findings, time.perf_counter() - started)
    if options.keep or options.directory is not None:
        console.print(
            f"See inside: [bold]python -m kafkalog dump {directory / 'flights-0'} | less[/]",
            highlight=False,
        )
    return findings.good


@contextmanager
def working_directory(options: DemoOptions) -> Iterator[Path]:
    """Yield the directory to work in; a temporary one is removed afterwards unless `keep`."""
    if options.directory is not None:
        if (options.directory / FLIGHTS).exists():
            raise DemoDirectoryError(f"{options.directory} holds an earlier demo: name another")
        options.directory.mkdir(parents=True, exist_ok=True)
        yield options.directory
    elif options.keep:
        yield Path(tempfile.mkdtemp(prefix="kafkalog-demo-"))
    else:
        with tempfile.TemporaryDirectory(prefix="kafkalog-demo-") as name:
            yield Path(name)


def act_append(
    console: Console,
    log: Log,
    records: Iterator[Record],
    options: DemoOptions,
    findings: Findings,
) -> Appended:
    """Append the flights; show throughput and files."""
    heading(console, 1, "Append a year of flights, compressed with zstd")
    total = min(FLIGHT_COUNT, options.limit or FLIGHT_COUNT)
    with progress_bar(console, "appending", total) as advance:
        appended = append_flights(log, records, advance)
    facts = segment_summaries(log)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("segment", ".log", ".index", ".timeindex"):
        table.add_column(name, justify="left" if name == "segment" else "right")
    for each in facts:
        table.add_row(
            f"{each.base_offset:020}",
            f"{each.log_bytes:,}",
            f"{each.index_bytes:,}",
            f"{each.time_index_bytes:,}",
        )
    console.print(table)
    console.print(
        "[dim]The index files of the last segment are preallocated (holes, no blocks) "
        "and trimmed when it is closed.[/]"
    )
    disk_bytes = sum(each.log_bytes for each in facts)
    rate = appended.count / appended.append_seconds
    speed = appended.payload_bytes / appended.append_seconds
    findings.add(
        f"{appended.count:,} flights appended at {rate:,.0f} records/s, {megabytes(speed)}/s of "
        f"JSON; {megabytes(appended.payload_bytes)} became {megabytes(disk_bytes)} in "
        f"{len(facts)} segments"
    )
    return appended


def act_read(console: Console, log: Log, appended: Appended, findings: Findings) -> None:
    """Read everything, then by offset and by time; check every answer."""
    heading(console, 2, "Read it back: all of it, by offset, by time")
    with progress_bar(console, "reading", appended.count) as advance:
        back = read_back(log, appended, advance)
    findings.add(
        f"{back.count:,} records read back at {back.count / back.seconds:,.0f} records/s, "
        f"{back.wrong} differ from what was appended",
        back.wrong == 0,
    )
    show_one(console, f"offset {appended.count // 2:,}", log, appended.count // 2)
    answer = log.offset_for_timestamp(LOOK_UP_TIME_MS)
    if answer is not None:
        show_one(console, "first at or after noon of July 4th", log, answer.offset)
    by_offset, by_time = check_look_ups(log, appended, min(LOOK_UPS, appended.count))
    for name, found in (("offset", by_offset), ("time", by_time)):
        findings.add(
            f"{found.count} look-ups by {name}, {found.microseconds_each:,.0f} us each, "
            f"{found.wrong} differ from a search through every record",
            found.wrong == 0,
        )


def show_one(console: Console, title: str, log: Log, offset: int) -> None:
    print_record(console, f"{title}: ", next(log.records(offset, offset + 1)))


def print_record(console: Console, title: str, record: Record) -> None:
    """Print a record in one line, cut at the edge of the terminal."""
    line = Text.assemble((title, "bold"), record_line(record))
    console.print(line, no_wrap=True, overflow="ellipsis")


def act_crash(console: Console, directory: Path, findings: Findings) -> None:
    """Kill a writer during its appends, tear its last bytes, open the log again."""
    heading(console, 3, "Kill a writer with SIGKILL in the middle of its work, and recover")
    with progress_bar(console, "durable appends until the kill", KILL_AFTER_APPENDS) as advance:
        outcome = crash_and_recover(directory, KILL_AFTER_APPENDS, lambda _: advance(1))
    show_recovery(console, outcome)
    findings.add(
        f"writer killed after {outcome.acknowledged} durable appends: of "
        f"{outcome.acknowledged_offset:,} acknowledged records "
        f"{outcome.lost} are lost and {outcome.wrong} are wrong",
        outcome.is_good,
    )
    cut = sum(tail.size_bytes for tail in outcome.report.cut)
    findings.add(
        f"{cut:,} torn bytes cut from the end and kept in a side file; "
        f"{outcome.recovered_offset - outcome.acknowledged_offset} whole records kept beyond "
        "those acknowledged",
        outcome.is_good,
    )


def show_recovery(console: Console, outcome: CrashOutcome) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("acknowledged before the kill", f"offset {outcome.acknowledged_offset:,}")
    table.add_row("torn by us as a power cut would", f"{outcome.torn_bytes:,} bytes of a batch")
    table.add_row("recovery report", outcome.report.summary())
    console.print(table, highlight=False)


def act_broker(console: Console, golden: Path | None, findings: Findings) -> None:
    """List a directory that a real broker wrote, and check every partition against its manifest."""
    heading(console, 4, "Read a data directory that an Apache Kafka broker wrote")
    if golden is None:
        console.print(
            "[yellow]Left out:[/] the broker's files come with the repository, not with the "
            "installed package. Clone it, or name them with --golden.",
        )
        findings.add("a broker's directory was not found (see --golden)", None)
        return
    if not (golden / "manifests").is_dir():
        raise DemoDirectoryError(f"{golden} must contain data/ and manifests/")
    names = partition_names(golden)
    if LISTED_PARTITION in names:
        with open_log(golden / "data" / LISTED_PARTITION, read_only=True) as log:
            console.print(f"[bold]{LISTED_PARTITION}[/], record by record:", highlight=False)
            for record in itertools.islice(log.records(), LISTED_RECORDS):
                print_record(console, "", record)
            console.print(f"  [dim]... and so on to offset {log.log_end_offset - 1:,}[/]")
    checks: list[PartitionCheck] = []
    with progress_bar(console, "partitions", len(names)) as advance:
        for check in check_partitions(golden, names):
            checks.append(check)
            advance(1)
    show_partitions(console, checks)
    wrong = [check.name for check in checks if not check.equal]
    total = sum(check.records for check in checks)
    findings.add(
        f"{len(checks)} partitions written by an Apache Kafka broker, {total:,} records: "
        + ("all equal what Kafka's own classes read" if not wrong else f"not equal: {wrong}"),
        not wrong,
    )


def show_partitions(console: Console, checks: list[PartitionCheck]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("partition", no_wrap=True)
    for name in ("segments", "batches", "records"):
        table.add_column(name, justify="right")
    table.add_column("codecs")
    table.add_column("equal")
    for check in checks:
        table.add_row(
            check.name,
            f"{check.segments:,}",
            f"{check.batches:,}",
            f"{check.records:,}",
            check.codecs,
            "[green]yes[/]" if check.equal else "[red]NO[/]",
        )
    console.print(table)


def show_findings(console: Console, findings: Findings, seconds: float) -> None:
    """Print the panel at the end."""
    rows = Table.grid(padding=(0, 2))
    marks = {True: "[green]ok[/]", False: "[bold red]NO[/]", None: "[yellow]--[/]"}
    for good, line in findings.lines:
        rows.add_row(marks[good], Text(line))
    rows.add_row("", f"[dim]{seconds:.1f} s in all[/]")
    title = "Every promise kept" if findings.good else "A PROMISE WAS BROKEN"
    style = "green" if findings.good else "red"
    console.print()
    console.print(Panel(rows, title=title, border_style=style, box=box.ROUNDED))


def heading(console: Console, number: int, title: str) -> None:
    console.print()
    console.rule(f"[bold]{number}. {title}", align="left")


@contextmanager
def progress_bar(console: Console, title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that moves the bar; nothing is drawn without a terminal."""
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)


def record_line(record: Record) -> str:
    """Return a record in one line."""
    when = datetime.fromtimestamp(record.timestamp_ms / 1000, UTC)
    key = "null" if record.key is None else record.key.decode("utf-8", "backslashreplace")
    value = "null" if record.value is None else record.value.decode("utf-8", "backslashreplace")
    return f"{record.offset:>6}  {when:%Y-%m-%d %H:%M:%S}Z  {key}  {value}"


def megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
