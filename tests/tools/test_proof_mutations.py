"""Tests of the worker of mutated directories: its memory bound counts the case only."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from tests.proof.directory_case import CaseResult
from tests.proof.mutations import Worker


def _take(image: object, seed: int, folder: Path) -> CaseResult:
    """Replace a case: allocate as many bytes as the seed."""
    return CaseResult(counts={"taken": len(bytearray(seed))})


@pytest.mark.parametrize(
    ("taken", "problems"), [(32 << 20, []), (1 << 30, ["untyped error: MemoryError"])]
)
def test_worker_bound_excludes_inherited_memory(
    tmp_path: Path, taken: int, problems: list[str]
) -> None:
    """Memory mapped before the fork is not counted; memory of the case is."""
    with mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        worker = Worker([None], tmp_path, run=_take, memory_bytes=64 << 20)
        try:
            assert problems == worker.perform(0, taken).problems
        finally:
            worker.stop()
