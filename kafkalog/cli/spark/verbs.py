"""`kafkalog spark JOB`: the jobs of `kafkalog.spark.jobs` on any Spark master.

Exit status: 0 success, 1 damage was found or work was left undone, 2 wrong arguments, 3 the command
failed. pyspark is loaded when a job begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from kafkalog.cli.exits import EXIT_DAMAGE_FOUND, error_boundary
from kafkalog.codec_table import CODEC_CHOICES
from kafkalog.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalog.spark.jobs import JobProgress, JobReport

__all__ = ["app"]

app = typer.Typer(
    name="spark",
    help="Jobs over log directories that outgrow one machine, on Spark.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

Paths: TypeAlias = Annotated[list[Path], typer.Argument(help="Data directories.")]
Master: TypeAlias = Annotated[str, typer.Option(help="As of spark-submit.")]
Conf: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--conf", help="A setting of Spark, as KEY=VALUE; repeatable."),
]
Options: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        help="An option of the data source, as KEY=VALUE (subscribe=orders); repeatable.",
    ),
]
Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the topics, as KEY=VALUE; repeatable."),
]
WorkDir: TypeAlias = Annotated[
    Path | None, typer.Option(help="For the job's files; next to the first directory if not given.")
]
JobId: TypeAlias = Annotated[
    str | None, typer.Option(help="A name for the job; that of an earlier run finishes it.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="The report as one JSON object.")]
AsJsonLines: TypeAlias = Annotated[bool, typer.Option("--json", help="A JSON object a line.")]

_SUMMED = ("bytes", "batches", "records")


def _pairs(texts: list[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise ConfigError(f"--conf must be KEY=VALUE, got {text!r}")
        found[key] = value
    return found


@contextmanager
def _session(master: str, conf: list[str] | None) -> Iterator[SparkSession]:
    """Start a session and stop it; errors become exit statuses."""
    with error_boundary():
        from kafkalog.spark import start_session
        from kafkalog.spark.prerequisites import require_pyspark

        require_pyspark()
        from kafkalog.spark.wrapped_errors import wrapped_errors

        settings = {"spark.ui.showConsoleProgress": "true", **_pairs(conf)}
        named = {name.replace(".", "__"): value for name, value in settings.items()}
        with wrapped_errors():
            spark = start_session(master, **named)
            try:
                yield spark
            finally:
                spark.stop()


def _print_progress(progress: JobProgress) -> None:
    typer.echo(f"{progress.stage}: {progress.done} of {progress.total} tasks", err=True)


def _once(report: Callable[[JobProgress], None]) -> Callable[[JobProgress], None]:
    """Leave out warnings that were printed before."""
    reported: list[JobProgress] = []

    def report_new(progress: JobProgress) -> None:
        if reported != [progress]:
            reported[:] = [progress]
            report(progress)

    return report_new


def _show(report: JobReport, *, as_json: bool) -> None:
    typer.echo(json.dumps(report.to_json()) if as_json else str(report))
    if report.status != "done":
        raise typer.Exit(EXIT_DAMAGE_FOUND)


def _as_plain(frame: DataFrame) -> DataFrame:
    """Return a frame with timestamps in ms: Kafka allows any int64, and datetime ends at 9999."""
    return frame.selectExpr(
        *(
            f"unix_millis(`{name}`) as `{name}`" if kind == "timestamp" else f"`{name}`"
            for name, kind in frame.dtypes
        )
    )


def _show_rows(frame: DataFrame, *, as_json: bool) -> list[Mapping[str, Any]]:
    rows: list[Mapping[str, Any]] = [row.asDict() for row in _as_plain(frame).collect()]
    for row in rows:
        if as_json:
            typer.echo(json.dumps(row, default=str))
        else:
            typer.echo("  ".join(f"{name}={value}" for name, value in row.items()))
    return rows


@app.command()
def verify(
    paths: Paths,
    deep: Annotated[bool, typer.Option(help="Open batches and look at every record.")] = False,
    sample: Annotated[float | None, typer.Option(help="The share of segments: up to 1.")] = None,
    master: Master = "local[*]",
    conf: Conf = None,
    options: Options = None,
    work_dir: WorkDir = None,
    job_id: JobId = None,
    as_json: AsJsonLines = False,
) -> None:
    """Verify every byte; print a line for each damaged segment, with status 1 if there is one."""
    with _session(master, conf) as spark:
        from kafkalog.spark import jobs

        frame = jobs.verify(
            spark,
            [*map(str, paths)],
            deep=deep,
            sample=sample,
            options=_pairs(options),
            work_dir=work_dir,
            job_id=job_id,
            on_progress=_once(_print_progress),
        )
        bad = "bad > 0 or error is not null or tail = 'torn' or not indexOk"
        rows = _show_rows(frame.where(bad), as_json=as_json)
        sums = ["count(*) n", *(f"coalesce(sum({name}), 0) {name}" for name in _SUMMED)]
        (all_of,) = frame.selectExpr(*sums).collect()
    totals = ", ".join(f"{all_of[name]:,} {name}" for name in _SUMMED)
    typer.echo(f"{all_of['n']:,} segments, {totals}: {len(rows)} segments are bad", err=True)
    if rows:
        raise typer.Exit(EXIT_DAMAGE_FOUND)


@app.command()
def stats(
    paths: Paths,
    master: Master = "local[*]",
    conf: Conf = None,
    options: Options = None,
    as_json: AsJsonLines = False,
) -> None:
    """Show the content of each partition, by the headers of its batches."""
    with _session(master, conf) as spark:
        from kafkalog.spark import jobs

        frame = jobs.stats(spark, [*map(str, paths)], options=_pairs(options))
        _show_rows(frame, as_json=as_json)


@app.command()
def snapshot(
    paths: Paths,
    out: Annotated[Path, typer.Option(help="A directory for Parquet; must not be there.")],
    as_of: Annotated[int | None, typer.Option(help="Records up to this time, in ms.")] = None,
    tombstones: Annotated[bool, typer.Option(help="Deleted keys too.")] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    options: Options = None,
    work_dir: WorkDir = None,
    job_id: JobId = None,
) -> None:
    """Write the latest record of each key as Parquet; the logs are only read."""
    with error_boundary():
        if out.exists():
            raise ConfigError(f"--out must not exist, got {out}")
    with _session(master, conf) as spark:
        from kafkalog.spark import jobs

        frame = jobs.snapshot(
            spark,
            [*map(str, paths)],
            as_of=as_of,
            drop_tombstones=not tombstones,
            options=_pairs(options),
            work_dir=work_dir,
            job_id=job_id,
            on_progress=_once(_print_progress),
        )
        frame.write.parquet(str(out))


@app.command()
def compact(
    paths: Paths,
    settings: Settings = None,
    include_active: Annotated[bool, typer.Option(help="Begin new segments first.")] = False,
    dry_run: Annotated[bool, typer.Option(help="Change nothing.")] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    options: Options = None,
    work_dir: WorkDir = None,
    job_id: JobId = None,
    as_json: AsJson = False,
) -> None:
    """Compact logs with more keys than one machine has memory."""
    with _session(master, conf) as spark:
        from kafkalog.spark import jobs

        report = jobs.compact(
            spark,
            [*map(str, paths)],
            policy=_pairs(settings),
            options=_pairs(options),
            include_active=include_active,
            dry_run=dry_run,
            work_dir=work_dir,
            job_id=job_id,
            on_progress=_once(_print_progress),
        )
    _show(report, as_json=as_json)


@app.command()
def export(
    paths: Paths,
    out: Annotated[Path, typer.Option(help="A directory for Parquet.")],
    codec: Annotated[str, typer.Option(help="none, snappy, gzip, lz4 or zstd.")] = "zstd",
    by: Annotated[list[str] | None, typer.Option("--by", help="topic, date; repeatable.")] = None,
    headers: Annotated[bool, typer.Option(help="A column of headers too.")] = False,
    master: Master = "local[*]",
    conf: Conf = None,
    options: Options = None,
    job_id: JobId = None,
    as_json: AsJson = False,
) -> None:
    """Write records as Parquet, by the workers, with a manifest."""
    with _session(master, conf) as spark:
        from kafkalog.spark import jobs

        report = jobs.export(
            spark,
            [*map(str, paths)],
            out,
            codec=codec,
            partition_by=("topic", "date") if by is None else by,
            options=_pairs(options),
            include_headers=headers,
            job_id=job_id,
            on_progress=_once(_print_progress),
        )
    _show(report, as_json=as_json)


@app.command()
def copy(
    paths: Paths,
    out: Annotated[Path, typer.Option(help="Another data directory.")],
    master: Master = "local[*]",
    conf: Conf = None,
    options: Options = None,
    work_dir: WorkDir = None,
    job_id: JobId = None,
    as_json: AsJson = False,
) -> None:
    """Copy logs byte for byte into another data directory."""
    with _session(master, conf) as spark:
        from kafkalog.spark import jobs

        report = jobs.copy(
            spark,
            [*map(str, paths)],
            out,
            options=_pairs(options),
            work_dir=work_dir,
            job_id=job_id,
            on_progress=_once(_print_progress),
        )
    _show(report, as_json=as_json)


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(help="A directory of Parquet files.")],
    path: Annotated[Path, typer.Argument(help="A data directory.")],
    codec: Annotated[str, typer.Option(help=f"{CODEC_CHOICES}.")] = "zstd",
    preserve_offsets: Annotated[bool, typer.Option(help="Keep the offsets of the rows.")] = True,
    master: Master = "local[*]",
    conf: Conf = None,
    work_dir: WorkDir = None,
    job_id: JobId = None,
    as_json: AsJson = False,
) -> None:
    """Write rows into logs, at the offsets that they have."""
    with _session(master, conf) as spark:
        from kafkalog.spark import jobs

        report = jobs.import_(
            spark,
            source,
            path,
            preserve_offsets=preserve_offsets,
            codec=codec,
            work_dir=work_dir,
            job_id=job_id,
            on_progress=_once(_print_progress),
        )
    _show(report, as_json=as_json)


@app.command()
def reindex(
    paths: Paths,
    settings: Settings = None,
    master: Master = "local[*]",
    conf: Conf = None,
    options: Options = None,
    work_dir: WorkDir = None,
    job_id: JobId = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild offset and time indexes."""
    with _session(master, conf) as spark:
        from kafkalog.spark import jobs

        report = jobs.reindex(
            spark,
            [*map(str, paths)],
            options=_pairs(options),
            settings=_pairs(settings),
            work_dir=work_dir,
            job_id=job_id,
            on_progress=_once(_print_progress),
        )
    _show(report, as_json=as_json)
