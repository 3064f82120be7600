"""Execution of `kafkalog convert`: the library call for the arguments, and its view.

Progress goes to standard error, results to standard output; with `--json` these are one object.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from kafkalog.cli.printing import print_json, progress_bar
from kafkalog.errors import ConfigError, UnsupportedCodecError
from kafkalog.files.filesystem import FileSystem
from kafkalog.log.conversion.data_directory import (
    DirectoryConversion,
    convert_directory,
    convertible_partitions,
    is_data_directory,
)
from kafkalog.log.conversion.estimate import LogEstimate, estimate_codecs
from kafkalog.log.conversion.outcome import ConversionProgress, LogConversion
from kafkalog.log.conversion.single_log import convert_log
from kafkalog.log.reading import OnCorrupt
from kafkalog.records.codecs import Codec

from .views import conversion_as_dict, estimate_as_dict, show_conversions, show_estimate

__all__ = ["ConvertRequest", "make_request", "run_convert", "run_estimate"]


@dataclass(frozen=True, slots=True)
class ConvertRequest:
    """
    Arguments of the command line.

    Attributes:
        source: a partition directory or a data directory.
        target: the directory to make; None in place, and for an estimate.
        in_place: True to rewrite the source.
        codec, level: of all batches; None keeps the codec of each.
        on_corrupt, verify: as for `convert_log`.
        as_json: the result as one JSON object.
    """

    source: Path
    target: Path | None
    in_place: bool
    codec: Codec | None
    level: int | None
    on_corrupt: OnCorrupt
    verify: bool
    as_json: bool


def make_request(
    source: Path,
    target: Path | None,
    compression: str,
    level: int | None,
    on_corrupt: str,
    in_place: bool,
    verify: bool,
    as_json: bool,
) -> ConvertRequest:
    """
    Return the request of the command line.

    Raises:
        UnsupportedCodecError: the codec is unknown.
        ConfigError: another argument is invalid.
    """
    if on_corrupt not in ("raise", "skip"):
        raise ConfigError(f"--on-corrupt must be raise or skip, got {on_corrupt}")
    return ConvertRequest(
        source=source,
        target=target,
        in_place=in_place,
        codec=_codec_named(compression),
        level=level,
        on_corrupt="skip" if on_corrupt == "skip" else "raise",
        verify=verify,
        as_json=as_json,
    )


def _codec_named(name: str) -> Codec | None:
    """Return the codec of a name on the command line; None for "keep"."""
    if name == "keep":
        return None
    if name == "none":
        return Codec.NONE
    codec = Codec.of_config(name)
    if codec is None:
        raise UnsupportedCodecError(f"--compression must be keep, none, gzip, ..., got {name!r}")
    return codec


def run_convert(
    output: Console, progress: Console, filesystem: FileSystem, request: ConvertRequest
) -> bool:
    """
    Convert, and show the result; return True if everything was converted.

    Raises:
        KafkaLogError: it failed, and nothing was left; in place, the completed conversions are
            shown. With JSON the error is in the object as well.
    """
    if (request.target is None) != request.in_place:
        raise ConfigError("give either the directory to make or --in-place")
    done: list[LogConversion] = []
    try:
        with progress_bar(progress) as move:

            def on_progress(step: ConversionProgress) -> None:
                move(f"{step.stage} {step.source.name}", step.done_bytes, step.total_bytes)

            made = _convert(filesystem, request, on_progress, done.append)
    except BaseException as error:
        if done or request.as_json:
            so_far = DirectoryConversion(request.source, request.source, tuple(done), (), ())
            _show(output, request, so_far, _not_done(filesystem, request.source, done), error)
        raise
    _show(output, request, made, [])
    return not any(log.left_out for log in made.logs)


def _show(
    output: Console,
    request: ConvertRequest,
    made: DirectoryConversion,
    not_done: list[str],
    error: BaseException | None = None,
) -> None:
    if not request.as_json:
        show_conversions(output, made, not_done)
        return
    shown: dict[str, Any] = {
        "logs": [conversion_as_dict(log) for log in made.logs],
        "copied": list(made.copied),
        "left_out": list(made.left_out),
        "not_done": not_done,
    }
    if error is not None:
        shown |= {"error": type(error).__name__, "message": str(error)}
    print_json(output, shown)


def _not_done(filesystem: FileSystem, source: Path, done: list[LogConversion]) -> list[str]:
    """Return the partitions that are unconverted, or converted in part."""
    whole = {log.source.name for log in done if log.is_complete}
    if not is_data_directory(filesystem, source):
        return [] if source.absolute().name in whole else [source.absolute().name]
    return [name for name in convertible_partitions(filesystem, source) if name not in whole]


def _convert(
    filesystem: FileSystem,
    request: ConvertRequest,
    on_progress: Callable[[ConversionProgress], None],
    done: Callable[[LogConversion], None],
) -> DirectoryConversion:
    options: dict[str, Any] = {
        "in_place": request.in_place,
        "codec": request.codec,
        "level": request.level,
        "on_corrupt": request.on_corrupt,
        "verify": request.verify,
        "progress": on_progress,
        "done": done,
        "filesystem": filesystem,
    }
    if is_data_directory(filesystem, request.source):
        return convert_directory(request.source, request.target, **options)
    log = convert_log(request.source, request.target, **options)
    return DirectoryConversion(log.source, log.target, (log,), (), ())


def run_estimate(output: Console, filesystem: FileSystem, request: ConvertRequest) -> None:
    """
    Measure every codec, or the requested one, on samples; show ratio and speed.

    Raises:
        KafkaLogError: a log cannot be read.
    """
    codecs = tuple(Codec) if request.codec is None else (Codec.NONE, request.codec)
    paths = [request.source]
    if is_data_directory(filesystem, request.source):
        names = convertible_partitions(filesystem, request.source)
        paths = [request.source / name for name in names]
    estimates: dict[Path, LogEstimate] = {
        path: estimate_codecs(path, codecs=codecs, level=request.level, filesystem=filesystem)
        for path in paths
    }
    if request.as_json:
        shown = {str(path): estimate_as_dict(found) for path, found in estimates.items()}
        print_json(output, shown)
    else:
        show_estimate(output, estimates)
