"""Parts of the proof and their context: seed, folder, clock, counters, folder of evidence.

A `Part` is named in `tests/proof/parts.py`; its module has a function `run(proof: Proof) -> None`,
which works until `seconds_left()` is 0 and reports what it finds to the `Proof`. An exception that
leaves `run` is a broken promise as well. A part writes below `proof.folder` only; of its threads,
one at a time reports.
"""

from __future__ import annotations

import importlib
import os
import random
import shutil
import stat
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

__all__ = ["Broken", "Part", "Proof", "Skipped", "perform"]

ROOT = Path(__file__).resolve().parents[2]
EVIDENCE = ROOT / ".proof" / "evidence"

# Limits of the kept evidence: pieces of a run, bytes of a piece, entries of a piece.
MOST_PIECES = 25
MOST_BYTES = 64 << 20
MOST_ENTRIES = 20_000


class Skipped(Exception):  # noqa: N818 - it is no error
    """Ends a part that cannot be run here; the message states why."""


@dataclass(frozen=True)
class Part:
    """
    One kind of proof.

    Attributes:
        name: what it is called on the command line.
        title: its heading on the page of results.
        about: what is done and what has to hold, in some sentences, for that page.
        module: dotted name of the module with `run(proof)`, imported when the part is run.
        needs: functions that return why the part cannot be run here, or an empty text.
        gate_seconds: how long its short form takes in the gate; 0 leaves it out there.
        inputs: names of its counters of changed inputs, which the page adds up over all parts.
    """

    name: str
    title: str
    about: str
    module: str
    needs: tuple[Callable[[], str], ...] = ()
    gate_seconds: int = 0
    inputs: tuple[str, ...] = ()

    def missing(self) -> str:
        """Return why this part cannot be run here, or an empty text."""
        return "; ".join(reason for need in self.needs if (reason := need()))

    def run(self, proof: Proof) -> None:
        """Import the module and run it."""
        importlib.import_module(self.module).run(proof)


@dataclass(frozen=True)
class Broken:
    """One broken promise: which, how it was seen, and where the evidence is."""

    title: str
    details: str
    evidence: str


@dataclass
class Proof:
    """
    One run of one part.

    Attributes:
        part: name of the part.
        seed: what all that is random comes from, together with the moments at which things happen.
        seconds: how long the run may take.
        folder: where the part writes; it is removed when the run ends.
        gate: this is the short form of the gate.
        options: what `--option NAME=VALUE` gave, for parts that know the name.
        evidence_root: where the evidence of broken promises is kept.
    """

    part: str
    seed: int
    seconds: float
    folder: Path
    gate: bool = False
    options: dict[str, str] = field(default_factory=dict)
    evidence_root: Path = EVIDENCE
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    found: list[Broken] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self._begun = time.monotonic()

    def seconds_left(self) -> float:
        """Return how much of the time is left, at least 0."""
        return max(0.0, self.seconds - (time.monotonic() - self._begun))

    def count(self, name: str, n: int = 1) -> None:
        """Add to one of the counters that the report shows, in the order of their first use."""
        self.counts[name] += n

    def note(self, text: str) -> None:
        """Add a sentence to the report; a sentence that is there already is not repeated."""
        if text not in self.notes:
            self.notes.append(text)

    def say(self, text: str) -> None:
        """Print a line while the part runs."""
        print(f"    {self.part}: {text}", flush=True)

    def skip(self, reason: str) -> NoReturn:
        """End the part, which cannot be run here."""
        raise Skipped(reason)

    def broken(self, title: str, details: str, files: Iterable[str | os.PathLike[str]] = ()) -> str:
        """
        Report a broken promise and keep its evidence; the part may continue.

        Args:
            title: which promise, in one line without numbers, so that equal ones can be counted.
            details: how it was seen, with all that is needed to see it again.
            files: files and directories to copy; their total size is bounded.

        Returns:
            The directory of the evidence, empty where enough has been kept.
        """
        self.count(f"broken: {title}")
        kept = ""
        if len(self.found) < MOST_PIECES:
            name = f"{self.part}-{self.seed}-{len(self.found) + 1}"
            kept = keep(self.evidence_root / name, f"{title}\n\n{details}\n", files)
        self.found.append(Broken(title, details[:4000], kept))
        first = details.strip().splitlines()[0] if details.strip() else ""
        print(f"!!! {self.part}: BROKEN: {title}: {first}", file=sys.stderr, flush=True)
        if kept:
            print(f"!!!   evidence: {kept}", file=sys.stderr, flush=True)
        return kept


def keep(folder: Path, text: str, files: Iterable[str | os.PathLike[str]]) -> str:
    """Copy evidence into a new folder, within bounds; return its name, relative where possible."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "what.txt").write_text(text, "utf-8", errors="backslashreplace")
    listing: list[str] = []
    left = MOST_BYTES
    for number, source in enumerate(map(Path, files)):
        left = _copy(source, folder / f"{number}-{source.name}", left, listing)
    (folder / "listing.txt").write_text("".join(listing), "utf-8", errors="backslashreplace")
    return str(folder.relative_to(ROOT)) if folder.is_relative_to(ROOT) else str(folder)


def _copy(source: Path, target: Path, left: int, listing: list[str]) -> int:
    """Copy a file or a tree without following links; return how many bytes may still follow."""
    try:
        facts = source.lstat()
        size, held = facts.st_size, facts.st_blocks * 512
        listing.append(f"{stat.filemode(facts.st_mode)} {size:>12} {held:>12} {source}\n")
        if len(listing) > MOST_ENTRIES:
            return left
        if stat.S_ISDIR(facts.st_mode):
            target.mkdir()
            for entry in sorted(source.iterdir()):
                left = _copy(entry, target / entry.name, left, listing)
        elif stat.S_ISREG(facts.st_mode):
            with source.open("rb") as reader, target.open("wb") as writer:
                copied = 0
                while copied < left and (data := reader.read(min(1 << 20, left - copied))):
                    writer.write(data)
                    copied += len(data)
            if copied < size:
                listing.append(f"    cut after {copied} bytes: evidence is bounded\n")
            left -= copied
    except OSError as error:
        listing.append(f"    not copied: {error}\n")
    return left


def perform(part: Part, proof: Proof) -> str:
    """Run a part; return why it was skipped, or an empty text."""
    reason = part.missing()
    if reason:
        return reason
    try:
        part.run(proof)
    except Skipped as skipped:
        return str(skipped)
    except Exception:  # noqa: BLE001 - whatever leaves a part is what the run has to report
        proof.broken("the part ended in an error", traceback.format_exc(), [proof.folder])
    return ""


def temporary_folder(part: str) -> tempfile.TemporaryDirectory[str]:
    """Return a folder of the system's temporary directory that is removed at the end."""
    return tempfile.TemporaryDirectory(prefix=f"kafkalog-proof-{part}-", ignore_cleanup_errors=True)


def parse_options(words: Sequence[str]) -> dict[str, str]:
    """Return options given as `NAME=VALUE`."""
    return {name: value for name, _, value in (word.partition("=") for word in words)}
