"""The view of a dump: facts become lines on a stream, and are counted."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from kafkalog.errors import KafkaLogError
from kafkalog.files.filesystem import FileSystem

from .facts import BatchFact, DamageFact, Fact, FileFact, RecordFact
from .file_selection import DumpOptions, dump_path
from .records import batch_records

__all__ = ["Selection", "Tally", "dump_to"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Selection of the facts to show, and their form."""

    records: bool = False
    batches: bool = True
    others: bool = True
    as_json: bool = False


@dataclass(slots=True)
class Tally:
    """Counts of the shown facts of each requested kind."""

    selection: Selection
    files: int = 0
    batches: int = 0
    records: int = 0
    damages: int = 0
    damaged_bytes: int = 0

    def count(self, fact: Fact) -> None:
        """Add one fact."""
        if isinstance(fact, RecordFact):
            self.records += 1
        elif isinstance(fact, BatchFact):
            self.batches += 1
        elif isinstance(fact, FileFact):
            self.files += 1
        elif isinstance(fact, DamageFact):
            self.damages += 1
            self.damaged_bytes += fact.size_bytes

    def summary(self) -> str:
        """Return one line for people; it leaves out kinds that were not requested, instead of 0."""
        kinds = [_counted("file", self.files)]
        if self.selection.batches:
            kinds.append(_counted("batch", self.batches))
        if self.selection.records:
            kinds.append(_counted("record", self.records))
        shown = ", ".join(kinds)
        if not self.damages:
            return f"{shown}; no damage"
        ranges = "1 damaged range" if self.damages == 1 else f"{self.damages:,} damaged ranges"
        return f"{shown}; {ranges}, {self.damaged_bytes:,} bytes"


def dump_to(
    stream: TextIO, filesystem: FileSystem, paths: Iterable[Path], selection: Selection
) -> Tally:
    """
    Write the dump of all paths to `stream`, line by line as the files are read.

    Raises:
        KafkaLogError: a path does not belong to a log, or the disk refused; what was read before it
            has been written.
        BrokenPipeError: the reader of the stream is gone.
    """
    if isinstance(stream, io.TextIOWrapper):
        # A terminal that cannot show a character of the data gets its escape instead.
        stream.reconfigure(errors="backslashreplace")
    options = DumpOptions(
        batches=selection.batches,
        others=selection.others,
        records=batch_records if selection.records else None,
    )
    tally = Tally(selection)
    try:
        for path in paths:
            for fact in dump_path(filesystem, path, options):
                tally.count(fact)
                line = as_json(fact) if selection.as_json else fact.text()
                if line:
                    stream.write(line + "\n")
    except KafkaLogError:
        stream.flush()
        raise
    stream.flush()
    return tally


def _counted(word: str, count: int) -> str:
    ending = "" if count == 1 else "es" if word.endswith("ch") else "s"
    return f"{count:,} {word}{ending}"


def as_json(fact: Fact) -> str:
    fields = fact.fields()
    return json.dumps(fields, separators=(",", ":")) if fields else ""
