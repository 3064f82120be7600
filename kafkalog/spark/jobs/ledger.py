"""The ledger of a job: its plan and its progress, in files that its tasks and its next run see.

    <work>/<job id>/
        job.json                the arguments
        <stage>/tasks.json      the tasks of the stage
        <stage>/<n>.json        the report of a task that is done
        <stage>/facts.json      the stage is done, with its result
        report.json             the job is done

Every file is written whole, under a unique name, synced, and renamed: a job that was killed at any
moment finds of each file either all or nothing, and does what is not done. Two attempts at one task
write the same.

The start of a job removes the files of others: of jobs that ended a week ago, and of jobs without a
write for a month, because they were given up, or because their result is a frame, which may or may
not be read again.

Crash points of that: a job's `job.json` is removed last but for its directory, so the rest of a job
is found, and removed, by a later one.

Thread-safety: that of the file system's renames; a ledger object has no state but its path. Nothing
here imports pyspark.
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
        Return the ledger of a job: a new one, or that of an earlier run; remove old ones.

        Args:
            work: directory of the ledgers.
            job_id: name of the job.
            arguments: of the job; an earlier run must have had the same.
            filesystem: the disk; the machine's if None.
            clock: source of time; the machine's if None.

        Raises:
            KafkaLogSparkError: OPTION_INVALID if the id cannot name a directory; OPTION_CONFLICT if
                the earlier run had other arguments.
            LogStorageError: the disk refused.
        """
        if _NAME.fullmatch(job_id) is None:
            raise invalid("job_id", job_id, "letters, digits, '.', '_' and '-', no '.' in front")
        ledger = cls(work / job_id, filesystem)
        old_arguments = ledger._read(_JOB)
        new_arguments = json.loads(json.dumps(arguments))
        now_ms = (clock or SystemClock()).now_ms()
        if old_arguments is None:
            ledger._write(_JOB, new_arguments)
            ledger._clear_away_others(now_ms)
        elif old_arguments != new_arguments:
            differing = sorted(
                name
                for name in {*old_arguments, *new_arguments}
                if old_arguments.get(name) != new_arguments.get(name)
            )
            raise KafkaLogSparkError(
                ErrorCode.OPTION_CONFLICT,
                f"the job {job_id} was begun with other arguments: {', '.join(differing)}",
                job_id=job_id,
                arguments=differing,
            )
        # Another run is at work.
        with storage_errors(ledger.directory, doing="touching"):
            ledger._filesystem.set_modified_ms(ledger.directory / _JOB, now_ms)
        return ledger

    @property
    def job_id(self) -> str:
        """The name of the job."""
        return self.directory.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the job."""
        found: dict[str, Any] = self._needed(_JOB)
        return found

    # ---- stages ----

    def plan(self, stage: str, tasks: Sequence[Mapping[str, Any]]) -> None:
        """Record the tasks of a stage; the plan of an earlier run is kept."""
        if self._read(f"{stage}/{_TASKS}") is None:
            self._write(f"{stage}/{_TASKS}", list(tasks))

    def is_planned(self, stage: str) -> bool:
        """Return True if an earlier run has planned a stage."""
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
        """Return the numbers of the tasks that are done."""
        path = self.directory / stage
        with storage_errors(path, doing="listing"):
            names = self._filesystem.list(path) if self._filesystem.stat(path) else []
        stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
        return sorted(int(stem) for stem in stems if stem.isdigit())

    def record_done(self, stage: str, number: int, report: Mapping[str, Any]) -> None:
        """Record that a task is done, with its report."""
        self._write(f"{stage}/{number}.json", report)

    def finish(self, stage: str, facts: Mapping[str, Any]) -> None:
        """Record that a stage is done, with its result."""
        self._write(f"{stage}/{_FACTS}", facts)

    def facts(self, stage: str) -> dict[str, Any] | None:
        """Return the result of a stage; None while it is not done."""
        found: dict[str, Any] | None = self._read(f"{stage}/{_FACTS}")
        return found

    # ---- the job ----

    def end(self, report: Mapping[str, Any]) -> None:
        """Record that the job is done."""
        self._write(_REPORT, report)

    def report(self) -> dict[str, Any] | None:
        """Return the report of the job; None while it is not done."""
        found: dict[str, Any] | None = self._read(_REPORT)
        return found

    def folder(self, name: str) -> Path:
        """Return a directory of the job's, made if it does not exist."""
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
                # Another driver may be removing ledgers, too; and not everything here is a job.
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
        """Return the time of a job's last write; that of a directory shows new files in it."""
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
