"""The preloaded library lets calls fail, those of compiled code as well."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof.failing_calls import build
from tests.proof.needs import gcc, linux

PROGRAM = """
import errno, sys
from pathlib import Path
import kafkalog
from kafkalog import Record
from tests.proof.failing_operations import HALF, ONCE, SYNC, WRITE, Failure, Library

folder = Path(sys.argv[1])
library = Library(folder)
log = kafkalog.open_log(folder / "t-0")
log.append([Record(value=b"first")])
library.arm(Failure(WRITE, errno.ENOSPC, HALF), 1)
try:
    log.append([Record(value=b"second" * 100)])
except kafkalog.DiskFullError:
    print("full", log.log_end_offset, library.has_failed())
library.arm(Failure(SYNC, errno.EIO, ONCE), 2)
try:
    log.append([Record(value=b"third")], wait="durable")
except kafkalog.LogStorageError as error:
    print("sync", error.errno)
library.disarm()
print("end", [record.value for record in log.records()], log.durable_offset)
"""


@pytest.mark.skipif(bool(linux() or gcc()), reason="it needs Linux and a C compiler")
def test_preloaded_library_fails_writes_of_compiled_code(tmp_path: Path) -> None:
    """An append writes in compiled code: half of its bytes, then no space; a sync fails later."""
    library = build(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=dict(os.environ, LD_PRELOAD=str(library)),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert [
        "full 1 True",
        "sync 5",
        "end [b'first', b'third'] 0",
    ] == done.stdout.splitlines(), done.stderr
