"""Fuzz targets by name; the name is also the folder of the corpus."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.fuzz import (
    appends,
    arrow_input,
    batches,
    cleaning,
    compressed_runs,
    directories,
    indexes,
    messages,
    replies,
    rows,
    runs,
    state_files,
)

__all__ = ["CORPUS", "TARGETS", "corpus_of"]

Target = Callable[[bytes], None]

TARGETS: Final[dict[str, Target]] = {
    "scan": batches.scan_batches,
    "decode": batches.decode_batches,
    "compressed": batches.decode_compressed,
    "messages": messages.decode_messages,
    "rows": rows.build_rows,
    "row-corruptions": rows.build_corrupt_rows,
    "row-runs": runs.build_runs,
    "compressed-rows": compressed_runs.build_compressed_runs,
    "compressed-runs": compressed_runs.decode_compressed_runs,
    "look-ups": runs.look_up,
    "appends": appends.append_as_leader,
    "follower-runs": appends.append_as_follower,
    "arrow": arrow_input.append_arrow,
    "indexes": indexes.check_indexes,
    "index-entries": indexes.select_entries,
    "cleaning": cleaning.clean_run,
    "cleaning-runs": runs.clean_runs,
    "replies": replies.parse_replies,
    "reader": replies.read_replies,
    "state-files": state_files.read_state,
    "directories": directories.open_directory,
}

CORPUS: Final = Path(__file__).resolve().parent / "corpus"


def corpus_of(name: str) -> list[Path]:
    """Return the files of a target's corpus, in order."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.is_file())
