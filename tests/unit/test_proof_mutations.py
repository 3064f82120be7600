"""The worker of the mutated directories: its bound is on what a case takes, whatever ran before."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from tests.proof import mutations
from tests.proof.directory_case import CaseResult


def _take(image: object, seed: int, folder: Path) -> CaseResult:
    """Stand for a case that takes as many bytes as its seed says."""
    return CaseResult(counts={"taken": len(bytearray(seed))})


@pytest.mark.parametrize(
    ("taken", "problems"), [(32 << 20, []), (1 << 30, ["untyped error: MemoryError"])]
)
def test_worker_is_bounded_beyond_what_it_was_forked_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int, problems: list[str]
) -> None:
    """What parts before left mapped is not counted; what the case takes is."""
    monkeypatch.setattr(mutations, "MEMORY_BYTES", 64 << 20)
    monkeypatch.setattr(mutations, "_run_case", _take)
    with mmap.mmap(-1, 256 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS):
        worker = mutations._Worker([None], tmp_path)  # type: ignore[list-item]
        try:
            assert problems == worker.perform(0, taken).problems
        finally:
            worker.stop()
