"""The verbs of the `kafkalog` command: arguments in, exit status out. They do no other work.

Exit status: 0 success, or the reader of the output closed the pipe; 1 damage was found (dump,
convert, stat), a problem was found (doctor) or a check failed (demo); 2 wrong arguments or
settings; 3 the command failed: no log there, the disk refused.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kafkalog.cli.compact.verbs import compact, explain, plan, stat
from kafkalog.cli.everyday import VERBS, run_verb
from kafkalog.cli.exits import (
    EXIT_CHECK_FAILED,
    EXIT_DAMAGE_FOUND,
    EXIT_UNHEALTHY,
    EXIT_USAGE_ERROR,
    error_boundary,
)
from kafkalog.cli.spark.verbs import app as spark_jobs
from kafkalog.codec_table import CODEC_CHOICES

__all__ = ["app"]

app = typer.Typer(
    name="kafkalog",
    help="Apache Kafka's log, embedded: dump, check, convert and compact it, see a demo.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(value: bool) -> None:
    if value:
        from kafkalog import __version__

        typer.echo(f"kafkalog {__version__}")
        raise typer.Exit


@app.callback()
def kafkalog(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    """Apache Kafka's log, embedded: dump, check, convert and compact it, see a demo."""


@app.command()
def dump(
    paths: Annotated[
        list[Path],
        typer.Argument(help="Segment files, index files, partition or data directories."),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show every record, with key and value.")
    ] = False,
    batches: Annotated[bool, typer.Option(help="Show every batch of a segment.")] = True,
    others: Annotated[
        bool, typer.Option(help="Show indexes, snapshots, checkpoints and metadata files too.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line; bytes are base64.")
    ] = False,
) -> None:
    """
    Print what is in the files of a log, damage included.

    Batches, records (control records decoded), index entries, aborted transactions, producer
    snapshots, checkpoints, leader epochs, partition.metadata. Text lines have the form of Kafka's
    own dump tool. Damaged bytes are a DAMAGE line with their position, and the dump continues
    after them; the exit status is then 1. Nothing is changed; a running broker is not disturbed.
    """
    from kafkalog.cli.dump.command import Selection, dump_to
    from kafkalog.files.posix import PosixFileSystem

    selection = Selection(records=records, batches=batches, others=others, as_json=as_json)
    with error_boundary(as_json=as_json):
        tally = dump_to(sys.stdout, PosixFileSystem(), paths, selection)
    typer.echo(tally.summary(), err=True)
    if tally.damages:
        raise typer.Exit(EXIT_DAMAGE_FOUND)


@app.command()
def convert(
    source: Annotated[Path, typer.Argument(help="A partition directory, or a data directory.")],
    target: Annotated[
        Path | None, typer.Argument(help="The directory to make; it must not exist.")
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Rewrite the source, segment by segment.")
    ] = False,
    compression: Annotated[
        str,
        typer.Option("--compression", "-c", help=f"keep, {CODEC_CHOICES}."),
    ] = "keep",
    level: Annotated[int | None, typer.Option(help="Level of that codec.")] = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Write nothing: sample each codec, show what it does."),
    ] = False,
    on_corrupt: Annotated[
        str, typer.Option(help="raise: stop at damage; skip: leave damage out and report it.")
    ] = "raise",
    verify: Annotated[
        bool, typer.Option(help="Read the result back and compare every record.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """
    Rewrite a log in format v2, or with another codec.

    Accepts logs of any age. Offsets, timestamps, keys, values and headers are kept, and read back
    and
    compared. With a target the source is only read. The exit status is 1 if damage was left out.
    """
    from kafkalog.cli.convert.command import make_request, run_convert, run_estimate
    from kafkalog.cli.terminal import SafeConsole
    from kafkalog.files.posix import PosixFileSystem

    filesystem = PosixFileSystem()
    with error_boundary(status=EXIT_USAGE_ERROR, as_json=as_json):
        request = make_request(
            source, target, compression, level, on_corrupt, in_place, verify, as_json
        )
    if estimate:
        with error_boundary(as_json=as_json):
            run_estimate(SafeConsole(), filesystem, request)
        return
    with error_boundary():
        whole = run_convert(SafeConsole(), SafeConsole(stderr=True), filesystem, request)
    if not whole:
        raise typer.Exit(EXIT_DAMAGE_FOUND)


@app.command()
def doctor(
    directories: Annotated[
        list[Path],
        typer.Argument(help="Data directories of one manager or broker, or a partition directory."),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="The diagnosis as one JSON object.")
    ] = False,
    handover: Annotated[
        bool,
        typer.Option("--handover", help="What a broker that gets the directories will compare."),
    ] = False,
    epoch: Annotated[
        int, typer.Option(min=0, help="With --handover: the controller's leader epoch.")
    ] = 0,
    offsets_partitions: Annotated[
        int, typer.Option(min=1, help="With --handover: its offsets.topic.num.partitions.")
    ] = 50,
    transaction_partitions: Annotated[
        int, typer.Option(min=1, help="... its transaction.state.log.num.partitions.")
    ] = 50,
) -> None:
    """
    Check a data directory and its machine; report problems and fixes.

    Limits, mounts, disk space, kernel settings, clock; checkpoints, locks, logs that were not
    closed,
    leftovers, names, owners. Each finding shows what was seen, why it matters and what to change.
    Nothing is changed; a running broker is not disturbed. The exit status is 1 if there is a
    warning or an error. With --handover also all that a broker's controller will compare: leader
    epochs, topic ids, partitions of internal topics, transactions, leftovers.
    """
    from kafkalog.cli.doctor.command import show_diagnosis, write_json
    from kafkalog.cli.terminal import SafeConsole
    from kafkalog.doctor.examine import examine_directories
    from kafkalog.doctor.handover import HandOver

    broker = HandOver(epoch, offsets_partitions, transaction_partitions)
    with error_boundary(as_json=as_json):
        diagnosis = examine_directories(directories, handover=broker if handover else None)
    if as_json:
        write_json(sys.stdout, diagnosis)
    else:
        show_diagnosis(SafeConsole(highlight=False), diagnosis)
    if not diagnosis.is_well:
        raise typer.Exit(EXIT_UNHEALTHY)


@app.command()
def lower_epochs(
    directories: Annotated[
        list[Path],
        typer.Argument(help="Data directories of one manager or broker, or a partition directory."),
    ],
    highest: Annotated[
        int,
        typer.Option("--to", help="The controller's leader epoch of the partitions, or less."),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """
    Lower leader epochs above a controller's: before a broker takes the directories over.

    Batches, leader-epoch-checkpoint and positions of groups are lowered; nothing else of them
    changes. Without it a broker drops its entries of later epochs, and clients that read one wait
    for a leader that has it. 0 is right for any controller.
    """
    from kafkalog.cli.handover.command import lower_epochs as lower
    from kafkalog.cli.handover.command import write_lowered

    with error_boundary(as_json=as_json):
        lowered = lower(directories, highest)
    write_lowered(sys.stdout, lowered, as_json=as_json)


@app.command()
def recover(
    directories: Annotated[
        list[Path], typer.Argument(help="Data directories of one manager or broker.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object a line: each recovered partition.")
    ] = False,
) -> None:
    """
    Recover data directories that were not closed in order, and close them in order.

    Before a broker starts on directories with a commit journal (kafkalog.journal.enable) after a
    power cut: it does not know the journal. The exit status is 1 if something could not be
    recovered.
    """
    from kafkalog.cli.recover.command import recover as recover_directories
    from kafkalog.cli.recover.command import write_recovery

    with error_boundary(as_json=as_json):
        recovery = recover_directories(directories)
    write_recovery(sys.stdout, recovery, as_json=as_json)
    if recovery.found_problems:
        raise typer.Exit(EXIT_DAMAGE_FOUND)


@app.command()
def demo(
    directory: Annotated[
        Path | None, typer.Option(help="Where to put the logs; a temporary directory if not given.")
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the logs where they are at the end.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Number of flights; all 336,776 if not given.")
    ] = None,
    golden: Annotated[
        Path | None, typer.Option(help="Data of a broker with manifests, as in tests/golden.")
    ] = None,
) -> None:
    """
    Show a log with real data: append, read, crash, recover, a broker's own files.

    336,776 flights are appended and read back by offset and by time, a writer is killed during its
    appends and its log recovered, and a data directory of a real Kafka broker is read. Everything
    is
    checked; the exit status is 1 if a check fails.
    """
    from kafkalog.cli.demo.command import DemoDirectoryError, DemoOptions, run_demo
    from kafkalog.cli.demo.flights import MissingDataError
    from kafkalog.cli.terminal import SafeConsole

    with error_boundary(MissingDataError, DemoDirectoryError):
        good = run_demo(SafeConsole(), DemoOptions(directory, keep, limit, golden))
    if not good:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _add_everyday(verb: str, summary: str) -> None:
    """Add an everyday verb, which has its own parser and help."""

    def run(context: typer.Context) -> None:
        raise typer.Exit(run_verb(verb, context.args))

    settings = {
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": [],
    }
    app.command(verb, help=summary, context_settings=settings)(run)


for verb, summary in VERBS.items():
    _add_everyday(verb, summary)
for command in (compact, plan, explain, stat):
    app.command()(command)
app.add_typer(spark_jobs)
