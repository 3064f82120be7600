"""Tests of the corpora: each file in its target; with KAFKALOG_FUZZ_SECONDS also the fuzzer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import CORPUS, TARGETS, corpus_of

ROOT = Path(__file__).resolve().parents[2]
SECONDS = int(os.environ.get("KAFKALOG_FUZZ_SECONDS", "0"))
# Limit of all committed files: a corpus must be small and quick to replay.
CORPUS_BYTES_MAX = 300_000


@pytest.mark.parametrize("name", TARGETS)
def test_corpus_is_refused_or_equals_the_reference(name: str) -> None:
    """Inputs found by a fuzzer and seeds keep their results."""
    files = corpus_of(name)
    assert files, f"{CORPUS / name} is empty"
    for path in files:
        try:
            TARGETS[name](path.read_bytes())
        except BaseException as error:
            error.add_note(f"with {path}")
            raise


@pytest.mark.parametrize("name", TARGETS)
def test_corpus_cut_short_is_refused_or_equals_the_reference(name: str) -> None:
    """Prefixes of the files in all targets."""
    for path in corpus_of(name)[::5]:
        data = path.read_bytes()
        for size in range(0, len(data), 1 + len(data) // 4):
            TARGETS[name](data[:size])


def test_corpora_are_small_and_have_targets() -> None:
    """Each folder has a target, and the total size is limited."""
    assert set(TARGETS) == {path.name for path in CORPUS.iterdir()}
    total = sum(path.stat().st_size for name in TARGETS for path in corpus_of(name))
    assert total <= CORPUS_BYTES_MAX


@pytest.mark.slow
@pytest.mark.skipif(
    not SECONDS, reason="NOT FUZZED: set KAFKALOG_FUZZ_SECONDS to seconds a target (5 are a start)"
)
@pytest.mark.parametrize("name", TARGETS)
def test_fuzzer_finds_nothing(name: str) -> None:
    """The fuzzer runs for KAFKALOG_FUZZ_SECONDS; longer runs are started by hand."""
    result = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", name, "--seconds", str(SECONDS)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60 + 10 * SECONDS,
    )
    assert 0 == result.returncode, result.stderr[-4000:]
