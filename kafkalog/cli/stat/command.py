"""Execution of `kafkalog stat`: surveys and their views.

Progress goes to standard error, results to standard output; with `--json` these are one object. A
damaged log is reported, and the others are still surveyed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from kafkalog.cleaner.survey import LogSurvey, survey_log
from kafkalog.cli.compact.command import open_read_only
from kafkalog.cli.compact.targets import TargetRequest, find_targets
from kafkalog.cli.printing import print_json, print_line, progress_bar
from kafkalog.cli.stat.html_report import survey_page
from kafkalog.cli.stat.keys import key_text
from kafkalog.cli.stat.tables import show_survey
from kafkalog.errors import CorruptRecordError, NotALogError
from kafkalog.files.atomic_files import replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem

__all__ = ["StatRequest", "run_stat"]


@dataclass(frozen=True, slots=True)
class StatRequest:
    """
    Arguments of the command line.

    Attributes:
        targets: the logs.
        html: path of the picture; None for none.
        top: number of the biggest keys.
        memory_bytes: for the map of keys; as in the settings if None.
        hide_keys: True to show keys as hashes.
        as_json: the result as one JSON object.
    """

    targets: TargetRequest
    html: Path | None = None
    top: int = 10
    memory_bytes: int | None = None
    hide_keys: bool = False
    as_json: bool = False


def run_stat(
    output: Console, progress: Console, filesystem: FileSystem, request: StatRequest
) -> bool:
    """
    Show the content of logs; return True if none is damaged.

    Raises:
        KafkaLogError: a log cannot be read, or the picture not written.
    """
    surveys, damaged = _surveys(progress, filesystem, request)
    if request.html is not None:
        title = f"kafkalog stat {request.targets.directory}"
        page = survey_page(surveys, title, hide_keys=request.hide_keys)
        with storage_errors(request.html, doing="writing"):
            replace_file(filesystem, request.html.absolute(), page.encode("ascii", _ESCAPED))
    if request.as_json:
        shown = [_as_dict(survey, hide_keys=request.hide_keys) for survey in surveys]
        print_json(output, {"logs": shown, "damaged": damaged})
    elif request.html is None:
        for survey in surveys:
            show_survey(output, survey, hide_keys=request.hide_keys)
    else:
        print_line(output, f"logs drawn in {request.html}: {len(surveys)}")
    if not request.as_json:
        for line in damaged:
            print_line(output, f"damaged: {line}")
    return not damaged


# Characters outside ASCII become character references in the page.
_ESCAPED = "xmlcharrefreplace"


def _surveys(
    progress: Console, filesystem: FileSystem, request: StatRequest
) -> tuple[list[LogSurvey], list[str]]:
    targets = find_targets(filesystem, request.targets)
    if not targets.logs:
        raise NotALogError(
            f"{targets.directory} holds no log with a segment", path=targets.directory
        )
    surveys: list[LogSurvey] = []
    damaged: list[str] = []
    with progress_bar(progress) as move:
        for target in targets.logs:
            try:
                with open_read_only(filesystem, target) as log:
                    surveys.append(
                        survey_log(
                            log,
                            config=targets.cleaner,
                            memory_bytes=request.memory_bytes,
                            top=request.top,
                            on_progress=partial(move, f"reading {target.name}"),
                        )
                    )
            except CorruptRecordError as error:
                damaged.append(f"{target.path}: {error}")
    return surveys, damaged


def _as_dict(survey: LogSurvey, *, hide_keys: bool) -> dict[str, Any]:
    shown = survey.as_dict()
    if hide_keys:
        for name in ("biggest_by_records", "biggest_by_bytes"):
            for each, key in zip(shown[name], getattr(survey, name), strict=True):
                each["key"] = key_text(key.key, hidden=True)
    return shown
