"""The crash of the demo: a writer is killed, its log is recovered and compared.

The parent learns only from the writer's lines which appends were acknowledged. After the kill it
adds damage that a kill cannot cause and a power cut can: the first half of one more batch at the
end of the log. Then it opens the log, which has to cut exactly that, and compares every
acknowledged record.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kafkalog import LogConfig, RecoveryReport, open_log
from kafkalog.layout import BATCH_FRAME, LOG_OVERHEAD

from .writer import expected_record

__all__ = ["CrashOutcome", "crash_and_recover"]

SECONDS_MAX = 60


@dataclass(frozen=True, slots=True)
class CrashOutcome:
    """
    Result of the kill and of the recovery.

    Attributes:
        acknowledged: appends that returned to the writer.
        acknowledged_offset: log end offset that the last of them reported as durable.
        exit_signal: signal that ended the writer.
        torn_bytes: half a batch, added at the end by the demo.
        report: the recovery report of the log.
        recovered_offset: log end offset after recovery.
        lost, wrong: acknowledged records that are missing, or differ from what was written.
    """

    acknowledged: int
    acknowledged_offset: int
    exit_signal: int
    torn_bytes: int
    report: RecoveryReport
    recovered_offset: int
    lost: int
    wrong: int

    @property
    def is_good(self) -> bool:
        """True if every promise was kept and exactly the torn bytes were cut."""
        cut = sum(tail.size_bytes for tail in self.report.cut)
        return self.lost == self.wrong == 0 and cut >= self.torn_bytes


def crash_and_recover(
    directory: Path, appends: int, progress: Callable[[int], None]
) -> CrashOutcome:
    """
    Start a writer, kill it after `appends` acknowledgements, recover and check.

    Args:
        directory: an empty or missing partition directory.
        appends: acknowledged appends to wait for.
        progress: called with the number of acknowledgements so far.
    """
    acknowledged = run_writer_and_kill(directory, appends, progress)
    torn_bytes = tear_tail(directory)
    promised = acknowledged[-1] if acknowledged else 0
    config = LogConfig(compression_type="zstd", retention_ms=-1)
    with open_log(directory, config=config) as log:
        found = wrong = 0
        for record in log.records(0, promised):
            expected = expected_record(found)
            wrong += (found, expected.key, expected.value) != (
                record.offset,
                record.key,
                record.value,
            )
            found += 1
        return CrashOutcome(
            acknowledged=len(acknowledged),
            acknowledged_offset=promised,
            exit_signal=signal.SIGKILL,
            torn_bytes=torn_bytes,
            report=log.recovery_report,
            recovered_offset=log.log_end_offset,
            lost=promised - found,
            wrong=wrong,
        )


def run_writer_and_kill(
    directory: Path, appends: int, progress: Callable[[int], None]
) -> list[int]:
    """
    Return the log end offsets that the writer acknowledged, those after the decision to kill it
    included: the pipe is read to its end.
    """
    command = [sys.executable, "-m", "kafkalog.cli.demo.writer", str(directory)]
    acknowledged: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            # A line that the kill cut off promised nothing.
            if line.endswith("\n"):
                acknowledged.append(int(line))
                progress(len(acknowledged))
            if len(acknowledged) == appends:
                os.kill(writer.pid, signal.SIGKILL)
        status = writer.wait(SECONDS_MAX)
    if status != -signal.SIGKILL:
        raise RuntimeError(f"the writer was to be killed, and ended with status {status}")
    return acknowledged


def tear_tail(directory: Path) -> int:
    """Append the first half of the log's first batch to the file; return its size."""
    logs = sorted(directory.glob("*.log"))
    head = logs[0].read_bytes()[:4096]
    _base_offset, length = BATCH_FRAME.unpack_from(head)
    torn = head[: (length + LOG_OVERHEAD) // 2]
    with logs[-1].open("ab") as log:
        log.write(torn)
    return len(torn)
