"""One mutated directory: opened in every way, and compared with what was in it before.

What must hold, whatever was changed:

  * every error is a `KafkaLogError`; a decoy outside the directory stays as it is;
  * what is served at an offset is what was there before;
  * an entry whose bytes are still whole in a live file of the same name is served, or its loss is
    reported: by an error, a corrupt range, a cut or removed file in the recovery report;
  * opening read-only changes no byte; opening for writing serves nothing less, a second opening
    serves the same, and an append gets an offset that no whole entry has.

One exception, told in the documentation: a changed base offset that contradicts nobody cannot be
seen. `_fits` says where that is so.
"""

from __future__ import annotations

import hashlib
import random
import stat
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import kafkalog
from tests.proof.directory_mutations import mutate
from tests.proof.entries import Entry
from tests.proof.partition_images import Image, Served, hashed, served_of

__all__ = ["CaseResult", "changed_copy", "run_case"]

READ_BYTES_MAX = 1 << 22
OFFSET_END = 2**63 - 1
_OF_A_STOP = (".kafka_cleanshutdown", ".kafkalog_syncs", "recovery-point-offset-checkpoint")


@dataclass
class CaseResult:
    """
    What a case showed.

    Attributes:
        problems: promises that are broken, a line each.
        counts: what was looked at.
        changes: what was done to the directory.
    """

    problems: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    changes: list[str] = field(default_factory=list)

    def count(self, name: str, more: int = 1) -> None:
        """Add to a count."""
        self.counts[name] = self.counts.get(name, 0) + more


@dataclass
class View:
    """What one opening serves and reports."""

    served: Served = field(default_factory=dict)
    reported: list[tuple[int, int]] = field(default_factory=list)
    files: list[tuple[str, int, int]] = field(default_factory=list)
    refused: str = ""


def run_case(image: Image, seed: int, folder: Path) -> CaseResult:
    """Write an image below `folder`, change it by the seed, and hold every view against it."""
    result = CaseResult()
    directory, result.changes, only_content = _changed(image, seed, folder)
    whole, touched = _whole_entries(image, directory)
    result.count("whole entries", len(whole))
    views = _open_in_every_way(image, directory, result, only_content, whole)
    for view in views:
        _check_truth(image, view, touched, result)
    for view in views:
        _check_losses(view, whole, touched, result)
    _compare(views, result)
    if not _decoys_are_whole(folder):
        result.problems.append("a decoy outside the directory was changed")
    return result


def changed_copy(image: Image, seed: int, folder: Path) -> list[str]:
    """Write what a case opens below `folder`; return what was done to it."""
    return _changed(image, seed, folder)[1]


def _changed(image: Image, seed: int, folder: Path) -> tuple[Path, list[str], bool]:
    source = random.Random(seed)
    directory = image.write(folder)
    _put_decoys(folder)
    killed = []
    if source.random() < 0.5:
        killed = ["no marker of a clean stop, no recovery point"]
        for name in _OF_A_STOP:
            (directory / name).unlink(missing_ok=True)
    changes, only_content = mutate(source, directory, image)
    return directory, [*killed, *changes], only_content


# ---- what is whole ----


def _whole_entries(image: Image, directory: Path) -> tuple[list[Entry], list[Entry]]:
    """Return the entries that are whole in a file of their name, and the others."""
    whole, touched = [], []
    for name, entries in image.entries.items():
        data = _content(directory / name)
        at = 0
        for entry in entries:
            found = -1
            if data is not None:
                found = entry.position
                if data[entry.position : entry.end] != entry.data:
                    found = data.find(entry.data, at)
            if found < 0:
                touched.append(entry)
            elif any(each in image.truth for each in range(*entry.offsets)):
                whole.append(Entry(found, entry.data, entry.first_offset, entry.last_offset, False))
                at = found + len(entry.data)
    return whole, touched


def _content(path: Path) -> bytes | None:
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
    except FileNotFoundError:
        return None
    with path.open("rb") as file:
        return file.read(READ_BYTES_MAX)


# ---- opening ----


def _open_in_every_way(
    image: Image, directory: Path, result: CaseResult, only_content: bool, whole: list[Entry]
) -> list[View]:
    before = _bytes_below(directory)
    reading = _view(image, directory, result, read_only=True)
    if before != _bytes_below(directory):
        result.problems.append("a read-only opening changed the directory")
    highest = max((entry.last_offset for entry in whole), default=-1)
    writing = _view(image, directory, result, append_above=highest)
    again = _view(image, directory, result)
    views = [reading, writing, again]
    for view in views:
        if view.refused:
            result.count(f"refused: {view.refused}")
            if only_content and any(image.entries.values()):
                result.problems.append(f"changed contents, and opening is refused: {view.refused}")
    return [view for view in views if not view.refused]


def _view(
    image: Image,
    directory: Path,
    result: CaseResult,
    *,
    read_only: bool = False,
    append_above: int | None = None,
) -> View:
    view = View()
    config = kafkalog.LogConfig(**image.settings)
    try:
        log = kafkalog.open_log(directory, config=config, read_only=read_only)
    except kafkalog.KafkaLogError as error:
        view.refused = f"{type(error).__name__}"
        return view
    try:
        _read(log, view, result)
        if append_above is not None:
            record = kafkalog.Record(value=b"new", timestamp_ms=1_700_000_000_000)
            first = log.append([record]).first_offset
            if first <= max(append_above, *view.served, -1):
                result.problems.append(f"an append got offset {first}, which an entry has")
            stored = log.get(first)
            if stored is None or bytes(stored.value or b"") != b"new":
                result.problems.append(f"the record appended at {first} is not served")
    except kafkalog.KafkaLogError as error:
        result.problems.append(f"reading or appending failed: {error!r}"[:300])
    finally:
        try:
            log.close()
        except kafkalog.KafkaLogError as error:
            result.problems.append(f"closing failed: {error!r}"[:300])
    return view


def _read(log: Any, view: View, result: CaseResult) -> None:
    view.served = served_of(log.records(on_corrupt="skip"))
    report = log.recovery_report
    ranges = [*log.fences(), *report.fenced]
    view.reported = [(each.first_offset, each.next_offset) for each in ranges]
    view.files = [(each.path.name, each.position, each.size_bytes) for each in ranges]
    view.files += [(each.path.name, each.position, each.size_bytes) for each in report.cut]
    view.files += [(path.name, 0, OFFSET_END) for path in report.removed]
    for offset in sorted(view.served)[:: 1 + len(view.served) // 20]:
        try:
            found = log.get(offset)
        except kafkalog.CorruptRecordError as error:
            result.problems.append(f"records serves offset {offset}, get raises {error!r}"[:200])
            continue
        if (
            found is None
            or (found.timestamp_ms, hashed(found.key), hashed(found.value)) != (view.served[offset])
        ):
            result.problems.append(f"records and get differ at offset {offset}")
    columns = log.scan(columns=["offset"], on_corrupt="skip").to_numpy()["offset"].tolist()
    if columns != sorted(view.served):
        different = set(columns) ^ set(view.served)
        result.problems.append(f"scan and records differ at offsets {sorted(different)[:5]}")
    result.count("records served", len(view.served))


# ---- what must hold ----


def _check_truth(image: Image, view: View, touched: list[Entry], result: CaseResult) -> None:
    for offset, found in view.served.items():
        # A record that was appended here: which offset it may have is checked there.
        if image.truth.get(offset) == found or found[2] == hashed(b"new"):
            continue
        if _fits(image, offset, found, touched):
            result.count("misplaced, and nobody contradicts")
            continue
        result.problems.append(f"offset {offset} serves what was never there")


def _fits(image: Image, offset: int, found: Any, touched: list[Entry]) -> bool:
    """Say whether a record is one of a touched entry that has moved between its neighbours."""
    names = [name for name, entries in image.entries.items() for each in touched if each in entries]
    for name, entry in zip(names, touched, strict=True):
        if not any(image.truth.get(each, ())[1:] == found[1:] for each in range(*entry.offsets)):
            continue
        entries = image.entries[name]
        at = entries.index(entry)
        above = entries[at + 1].first_offset if at + 1 < len(entries) else OFFSET_END
        below = entries[at - 1].last_offset if at else int(name[:20]) - 1
        if below < offset < above:
            return True
    return False


def _check_losses(view: View, whole: list[Entry], touched: list[Entry], result: CaseResult) -> None:
    lost = [entry for entry in whole if not _is_served(entry, view)]
    # Of two neighbours that contradict each other, nothing may tell which is right.
    if len(touched) == 1 and len(result.changes) == 1 and len(lost) > 1:
        result.problems.append(f"one damaged entry costs {len(lost)} whole ones")
    for entry in lost:
        if _is_reported(entry, view):
            result.count("whole entries lost, and reported")
        else:
            place = f"{entry.first_offset} to {entry.last_offset} at {entry.position}"
            result.problems.append(f"the whole entry of offsets {place} is lost without a word")


def _is_served(entry: Entry, view: View) -> bool:
    return any(offset in view.served for offset in range(*entry.offsets))


def _is_reported(entry: Entry, view: View) -> bool:
    by_offset = any(
        first <= entry.last_offset and entry.first_offset < end for first, end in view.reported
    )
    return by_offset or any(
        position <= entry.position < position + size for _name, position, size in view.files
    )


def _compare(views: list[View], result: CaseResult) -> None:
    new = hashed(b"new")
    served = [
        {offset: found for offset, found in view.served.items() if found[2] != new}
        for view in views
    ]
    for before, after in pairwise(served):
        less = before.keys() - after.keys()
        more = after.keys() - before.keys()
        if less:
            result.problems.append(f"a later opening serves no more {sorted(less)[:5]}")
        if more:
            result.problems.append(f"a later opening serves {sorted(more)[:5]} as well")


# ---- around the directory ----


def _put_decoys(folder: Path) -> None:
    decoys = folder / "decoys"
    decoys.mkdir()
    (decoys / "file").write_bytes(b"precious " * 20)


def _decoys_are_whole(folder: Path) -> bool:
    decoys = folder / "decoys"
    names = [path.name for path in decoys.iterdir()]
    return names == ["file"] and (decoys / "file").read_bytes() == b"precious " * 20


def _bytes_below(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        facts = path.lstat()
        found[str(path.relative_to(directory))] = facts.st_mode, facts.st_size
        if stat.S_ISREG(facts.st_mode):
            with path.open("rb") as file:
                data = file.read(READ_BYTES_MAX)
            found[str(path.relative_to(directory))] += (hashlib.blake2b(data).digest(),)
    # Opening takes the lock, whose file may be made.
    found.pop(".lock", None)
    return found
