"""What a job has planned and done, in files that its tasks and its next run see.

    <work>/<job id>/
        job.json                what was asked for
        <stage>/tasks.json      what the stage consists of
        <stage>/<n>.json        the report of a task that is done
        <stage>/facts.json      the stage is done, with what it came to
        report.json             the job is done

Every file is written whole, under a name of its own, put on the disk, and renamed: a job that was
killed at any moment finds of each either all or nothing, and goes on with what is not done. Two
attempts at one task write the same.

Who begins a job clears away after others: those that have ended a week ago, and those that nobody
has touched for a month, be it that they were given up, or that what they give is a frame, of which
nobody knows whether it will be read again.

Crash points of that: a job's `job.json` goes last but for its directory, so what is left of a job
is found, and cleared away, by a later one.

Thread-safety: as far as the file system's renames go; a ledger object has no state but its path.
Nothing here imports pyspark.
"""

from __future__ import annotations

import json
import logging
import re
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from kafkalog.clock import Clock, SystemClock
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.posix import PosixFileSystem
from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.options.option import invalid

__all__ = ["JobLedger"]

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,199}")
_JOB: Final = "job.json"
_TASKS: Final = "tasks.json"
_FACTS: Final = "facts.json"
_REPORT: Final = "report.json"
_BYTES_MAX: Final = 1 << 30
_DAY_MS: Final = 86_400_000
_KEPT_ENDED_MS: Final = 7 * _DAY_MS
_KEPT_MS: Final = 30 * _DAY_MS

logger = logging.getLogger(__name__)


class JobLedger:
    """
    The files of one job.

    Args:
        directory: of the job.
        filesystem: the disk; the machine's if None.
    """

    def __init__(self, directory: Path, filesystem: FileSystem | None = None) -> None:
        self.directory = directory
        self._filesystem = PosixFileSystem() if filesystem is None else filesystem

    @classmethod
    def begin(
        cls,
        work: Path,
        job_id: str,
        arguments: Mapping[str, Any],
        filesystem: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> JobLedger:
        """
        Return the ledger of a job: a new one, or that of an earlier run; clear away after old ones.

        Args:
            work: where ledgers are.
            job_id: names it.
            arguments: what the job is; an earlier run has to have been asked for the same.
            filesystem: the disk; the machine's if None.
            clock: source of time; the machine's if None.

        Raises:
            KafkaLogSparkError: OPTION_INVALID where the id is no name for a directory;
                OPTION_CONFLICT where it was asked for something else.
            LogStorageError: the disk refused.
        """
        if _NAME.fullmatch(job_id) is None:
            raise invalid("job_id", job_id, "letters, digits, '.', '_' and '-', no '.' in front")
        ledger = cls(work / job_id, filesystem)
        known = ledger._read(_JOB)
        wanted = json.loads(json.dumps(arguments))
        now_ms = (clock or SystemClock()).now_ms()
        if known is None:
            ledger._write(_JOB, wanted)
            ledger._clear_away_others(now_ms)
        elif known != wanted:
            differing = sorted(
                name for name in {*known, *wanted} if known.get(name) != wanted.get(name)
            )
            raise KafkaLogSparkError(
                ErrorCode.OPTION_CONFLICT,
                f"the job {job_id} was begun with other arguments: {', '.join(differing)}",
                job_id=job_id,
                arguments=differing,
            )
        # Somebody is at it again.
        with storage_errors(ledger.directory, doing="touching"):
            ledger._filesystem.set_modified_ms(ledger.directory / _JOB, now_ms)
        return ledger

    @property
    def job_id(self) -> str:
        """The name of the job."""
        return self.directory.name

    @property
    def arguments(self) -> dict[str, Any]:
        """What the job is."""
        found: dict[str, Any] = self._needed(_JOB)
        return found

    # ---- stages ----

    def plan(self, stage: str, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Write down what a stage consists of; what an earlier run has planned stays."""
        if self._read(f"{stage}/{_TASKS}") is None:
            self._write(f"{stage}/{_TASKS}", list(tasks))

    def is_planned(self, stage: str) -> bool:
        """Whether an earlier run has planned a stage."""
        return self._read(f"{stage}/{_TASKS}") is not None

    def tasks(self, stage: str) -> list[dict[str, Any]]:
        """Return the tasks of a stage."""
        found: list[dict[str, Any]] = self._needed(f"{stage}/{_TASKS}")
        return found

    def done(self, stage: str) -> dict[int, dict[str, Any]]:
        """Return the reports of the tasks that are done, by number."""
        reports = {number: self.report_of(stage, number) for number in self.numbers_done(stage)}
        return {number: report for number, report in reports.items() if report is not None}

    def report_of(self, stage: str, number: int) -> dict[str, Any] | None:
        """Return the report of a task; None while it is not done."""
        found: dict[str, Any] | None = self._read(f"{stage}/{number}.json")
        return found

    def numbers_done(self, stage: str) -> list[int]:
        """Return which tasks are done."""
        path = self.directory / stage
        with storage_errors(path, doing="listing"):
            names = self._filesystem.list(path) if self._filesystem.stat(path) else []
        stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def record_done(self, stage: str, number: int, report: Mapping[str, Any]) -> None:
        """Write down that a task is done, with what there is to say of it."""
        self._write(f"{stage}/{number}.json", report)

    def finish(self, stage: str, facts: Mapping[str, Any]) -> None:
        """Write down that a stage is done, with what it came to."""
        self._write(f"{stage}/{_FACTS}", facts)

    def facts(self, stage: str) -> dict[str, Any] | None:
        """Return what a stage came to; None while it is not done."""
        found: dict[str, Any] | None = self._read(f"{stage}/{_FACTS}")
        return found

    # ---- the job ----

    def end(self, report: Mapping[str, Any]) -> None:
        """Write down that the job is done."""
        self._write(_REPORT, report)

    def report(self) -> dict[str, Any] | None:
        """Return what the job came to; None while it is not done."""
        found: dict[str, Any] | None = self._read(_REPORT)
        return found

    def folder(self, name: str) -> Path:
        """Return a directory of the job's, made if it is not there."""
        path = self.directory / name
        with storage_errors(path, doing="making"):
            self._make(path)
        return path

    def discard(self, name: str) -> None:
        """Remove a directory of the job's and all in it."""
        path = self.directory / name
        with storage_errors(path, doing="removing"):
            self._remove(path)

    # ---- old jobs ----

    def _clear_away_others(self, now_ms: int) -> None:
        work = self.directory.parent
        with storage_errors(work, doing="clearing up"):
            names = self._filesystem.list(work)
            for other in (work / name for name in names if name != self.job_id):
                # Another driver may be clearing up, too; and not all that is here is a job.
                with suppress(FileNotFoundError, NotADirectoryError):
                    if self._is_over(other, now_ms):
                        logger.info("the files of the job %s are removed", other)
                        self._remove_job(other)

    def _is_over(self, directory: Path, now_ms: int) -> bool:
        if self._filesystem.stat(directory / _JOB) is None:
            return False
        has_ended = self._filesystem.stat(directory / _REPORT) is not None
        age_ms = now_ms - self._touched_ms(directory)
        return age_ms > (_KEPT_ENDED_MS if has_ended else _KEPT_MS)

    def _touched_ms(self, directory: Path) -> int:
        """Return when a job wrote last; a directory tells of the files that came into it."""
        paths = [directory / name for name in self._filesystem.list(directory)]
        found = [self._filesystem.stat(path) for path in (directory, *paths)]
        return max((facts.modified_ms for facts in found if facts is not None), default=0)

    def _remove_job(self, directory: Path) -> None:
        for name in self._filesystem.list(directory):
            if name != _JOB:
                self._remove(directory / name)
        self._remove(directory)

    # ---- files ----

    def _remove(self, path: Path) -> None:
        facts = self._filesystem.stat(path)
        if facts is None:
            return
        if not facts.is_directory:
            self._filesystem.unlink(path)
            return
        for name in self._filesystem.list(path):
            self._remove(path / name)
        self._filesystem.remove_directory(path)

    def _make(self, path: Path) -> None:
        missing = []
        while self._filesystem.stat(path) is None:
            missing.append(path)
            path = path.parent
        for each in reversed(missing):
            try:
                self._filesystem.make_directory(each)
            except FileExistsError:
                continue
            self._filesystem.sync_directory(each.parent)

    def _needed(self, name: str) -> Any:
        found = self._read(name)
        if found is None:
            path = self.directory / name
            raise KafkaLogSparkError(ErrorCode.JOB_FAILED, f"{path} is gone", path=str(path))
        return found

    def _read(self, name: str) -> Any:
        path = self.directory / name
        with storage_errors(path, doing="reading"):
            try:
                handle = self._filesystem.open(path)
            except FileNotFoundError:
                return None
            try:
                text = handle.pread(min(handle.size(), _BYTES_MAX), 0)
            finally:
                handle.close()
        try:
            return json.loads(text)
        except ValueError as error:
            raise KafkaLogSparkError(
                ErrorCode.JOB_FAILED, f"{path} is not what a job writes: {error}", path=str(path)
            ) from error

    def _write(self, name: str, value: Any) -> None:
        path = self.directory / name
        with storage_errors(path, doing="writing"):
            self._make(path.parent)
            temporary = path.parent / f".{path.name}.{uuid.uuid4().hex}"
            handle = self._filesystem.create_new(temporary)
            try:
                handle.pwrite(json.dumps(value).encode(), 0)
                handle.sync()
            finally:
                handle.close()
            self._filesystem.rename(temporary, path)
            self._filesystem.sync_directory(path.parent)
