"""One mutated directory: opened with every option, and compared with its contents before.

What must hold, whatever was changed:

  * every error is a `KafkaLogError`; a decoy outside the directory stays as it is;
  * what is served at an offset is what was there before;
  * an entry whose bytes are still whole in a live file of the same name is served, or its loss is
    reported: by an error, a corrupt range, a cut or removed file in the recovery report;
  * opening read-only changes no byte; opening for writing serves nothing less, a second opening
    serves the same, and an append gets an offset that no whole entry has.

One exception, which the documentation names: a changed base offset that nothing contradicts cannot
be seen. `tests.proof.directory_contents` names the cases.
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
from tests.proof.directory_contents import Found, look_at
from tests.proof.directory_mutations import mutate
from tests.proof.entries import Entry
from tests.proof.partition_images import Image, Served, hashed, served_of

__all__ = [
    "OFFSET_END",
    "OF_A_STOP",
    "CaseResult",
    "View",
    "bytes_below",
    "changed_copy",
    "check_append",
    "check_losses",
    "check_truth",
    "compare",
    "decoys_are_whole",
    "put_decoys",
    "read_log",
    "run_case",
]

READ_BYTES_MAX = 1 << 22
LOOKED_UP = 8
OFFSET_END = 2**63 - 1
OF_NAMES = ("rename", "exchange", "copy")
OF_A_STOP = (".kafka_cleanshutdown", ".kafkalog_syncs", "recovery-point-offset-checkpoint")


@dataclass
class CaseResult:
    """
    Result of a case.

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
    """
    Records and reports of one opening.

    Attributes:
        served: by offset.
        reported: ranges of offsets that may be missing.
        files: file name, position and size of what is damaged, cut or removed.
        kept: the bytes that were cut, now and by openings before, as they are next to the log.
        refused: name of the error of an opening that was refused.
        is_read_only: whether it was opened so.
        is_read: whether all of it could be read.
        completed: ranges of offsets whose segments this opening took from `.swap` files, or gave
            back, where such a file was damaged.
    """

    served: Served = field(default_factory=dict)
    reported: list[tuple[int, int]] = field(default_factory=list)
    files: list[tuple[str, int, int]] = field(default_factory=list)
    kept: list[bytes] = field(default_factory=list)
    refused: str = ""
    is_read_only: bool = False
    is_read: bool = False
    completed: list[tuple[int, int]] = field(default_factory=list)


def run_case(image: Image, seed: int, folder: Path) -> CaseResult:
    """Write an image below `folder`, change it by the seed, and hold every view against it."""
    result = CaseResult()
    directory, result.changes, only_content = _changed(image, seed, folder)
    found = look_at(image, directory)
    result.count("whole entries", len(found.whole))
    views = _open_in_every_way(image, directory, result, only_content, found)
    for view in views:
        check_truth(image, view, found, result)
    kept: list[bytes] = []
    for view in views:
        kept = view.kept = [*kept, *view.kept]
        check_losses(view, found, result)
    compare(views, result)
    if not decoys_are_whole(folder):
        result.problems.append("a decoy outside the directory was changed")
    return result


def changed_copy(image: Image, seed: int, folder: Path) -> list[str]:
    """Write what a case opens below `folder`; return what was done to it."""
    return _changed(image, seed, folder)[1]


def _changed(image: Image, seed: int, folder: Path) -> tuple[Path, list[str], bool]:
    source = random.Random(seed)
    directory = image.write(folder)
    put_decoys(folder)
    killed = []
    if source.random() < 0.5:
        killed = ["no marker of a clean stop, no recovery point"]
        for name in OF_A_STOP:
            (directory / name).unlink(missing_ok=True)
    changes, only_content = mutate(source, directory, image)
    return directory, [*killed, *changes], only_content


# ---- opening ----


def _open_in_every_way(
    image: Image, directory: Path, result: CaseResult, only_content: bool, found: Found
) -> list[View]:
    before = bytes_below(directory)
    reading = _view(image, directory, result, read_only=True)
    if before != bytes_below(directory):
        result.problems.append("a read-only opening changed the directory")
    writing = _view(image, directory, result, found=found)
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
    found: Found | None = None,
) -> View:
    view = View(is_read_only=read_only)
    config = kafkalog.LogConfig(**image.settings)
    bases = bases_in(directory)
    try:
        log = kafkalog.open_log(directory, config=config, read_only=read_only)
    except kafkalog.KafkaLogError as error:
        view.refused = f"{type(error).__name__}"
        return view
    try:
        read_log(log, bases, view, result)
        view.is_read = True
        if found is not None:
            check_append(log, view, found, result)
    except kafkalog.KafkaLogError as error:
        if view.is_read and _names_no_file(error):
            result.count("appends refused: something else has the name of a file")
        else:
            result.problems.append(f"reading or appending failed: {error!r}"[:300])
    finally:
        try:
            log.close()
        except kafkalog.KafkaLogError as error:
            result.problems.append(f"closing failed: {error!r}"[:300])
    return view


def check_append(log: Any, view: View, found: Found, result: CaseResult) -> None:
    """Append a record: at an offset that no entry has but what was cut, and it is served."""
    there = [entry.last_offset for _, entry in found.whole if not _is_kept(entry, view)]
    record = kafkalog.Record(key=b"new", value=b"new", timestamp_ms=1_700_000_000_000)
    first = log.append([record]).first_offset
    if first <= max([-1, *there, *view.served]):
        result.problems.append(f"an append got offset {first}, which an entry has")
    stored = log.get(first)
    if stored is None or bytes(stored.value or b"") != b"new":
        result.problems.append(f"the record appended at {first} is not served")


def _is_kept(entry: Entry, view: View) -> bool:
    return any(entry.data in kept for kept in view.kept)


def _names_no_file(error: kafkalog.KafkaLogError) -> bool:
    """Return whether an error names what is there, and is no regular file."""
    path = getattr(error, "path", None)
    try:
        return path is not None and not stat.S_ISREG(Path(path).lstat().st_mode)
    except OSError:
        return False


def bases_in(directory: Path) -> list[int]:
    """Return the base offsets of the segments, and what is above all."""
    names = (path.stem for path in directory.glob("[0-9]*.log"))
    return [*sorted(int(name) for name in names if name.isdigit()), OFFSET_END]


def read_log(log: Any, bases_before: list[int], view: View, result: CaseResult) -> None:
    """Read a log by every method, and take its reports."""
    view.served = served_of(log.records(on_corrupt="skip"))
    report = log.recovery_report
    ranges = [*log.corrupt_ranges(), *report.corrupt_ranges]
    view.reported = [(each.first_offset, each.next_offset) for each in ranges]
    view.files = [(each.path.name, each.position, each.size_bytes) for each in ranges]
    bases = bases_in(log.directory)
    for path in report.completed_swaps:
        base = int(path.name[:20])
        view.completed.append((base, next(each for each in bases if each > base)))
    for refused in report.refused_swaps:
        # Up to the next segment that was there, what it was to replace may be served again.
        base = int(refused.path.name[:20])
        view.completed.append((base, next(each for each in bases_before if each > base)))
    for cut in report.cut:
        if view.is_read_only:
            view.files.append((cut.path.name, cut.position, cut.size_bytes))
        elif cut.kept_in is not None:
            with cut.kept_in.open("rb") as file:
                view.kept.append(file.read(READ_BYTES_MAX))
    view.files += [(path.name, 0, OFFSET_END) for path in report.removed]
    for offset in sorted(view.served)[:: 1 + len(view.served) // LOOKED_UP]:
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


# ---- invariants ----


def check_truth(image: Image, view: View, found: Found, result: CaseResult) -> None:
    """Hold what is served against what was there, by its offset."""
    sources = set()
    for offset, record in view.served.items():
        # A record that was appended here: which offset it may have is checked there.
        if image.truth.get(offset) == record or record[2] == hashed(b"new"):
            continue
        source = next((each for each in found.moved if each.explains(image, offset, record)), None)
        if source is not None:
            sources.add(source)
        elif any(each.first_offset <= offset <= each.last_offset for each in found.returned):
            result.count("records of a segment that had been set aside")
        else:
            result.problems.append(f"offset {offset} serves what was never there")
    if sources:
        result.count("entries under another offset, which nothing contradicts", len(sources))


def check_losses(view: View, found: Found, result: CaseResult) -> None:
    """See that what is whole is served, or its loss reported."""
    lost = [(name, entry) for name, entry in found.whole if not _is_served(entry, view)]
    # Of two neighbours that contradict each other, nothing may show which is right; a file under
    # another name contradicts all that has offsets next to it.
    changes = [change for each in result.changes for change in each.split("; ")]
    is_content = len(changes) == 1 and not any(word in changes[0] for word in OF_NAMES)
    if len(found.touched) == 1 and is_content and len(lost) > 1:
        result.problems.append(f"one damaged entry costs {len(lost)} whole ones")
    if lost and found.has_all_logs:
        result.problems.append(f"no log file was changed, and {len(lost)} entries are not served")
    for name, entry in lost:
        if _is_reported(name, entry, view):
            result.count("whole entries lost, and reported")
        else:
            place = f"{entry.first_offset} to {entry.last_offset} at {entry.position}"
            result.problems.append(f"the whole entry of offsets {place} is lost without a word")


def _is_served(entry: Entry, view: View) -> bool:
    return any(offset in view.served for offset in range(*entry.offsets))


def _is_reported(name: str, entry: Entry, view: View) -> bool:
    by_offset = any(
        first <= entry.last_offset and entry.first_offset < end for first, end in view.reported
    )
    if _is_kept(entry, view):
        return True
    return by_offset or any(
        name == file and position <= entry.position < position + size
        for file, position, size in view.files
    )


def compare(views: list[View], result: CaseResult) -> None:
    """Hold each view against the one before; the first is the read-only one."""
    new = hashed(b"new")
    served = [
        {offset: found for offset, found in view.served.items() if found[2] != new}
        for view in views
    ]
    for number, (view, (before, after)) in enumerate(zip(views, pairwise(served), strict=False)):
        less = before.keys() - after.keys()
        more = after.keys() - before.keys()
        if view.is_read_only:
            # It completes nothing that a broker has left unfinished: it reads the old segment as
            # long as that is there, and reports what else that hides.
            hidden = [*view.reported, *views[number + 1].completed]
            more -= {each for each in more if any(a <= each < b for a, b in hidden)}
        if less:
            result.problems.append(f"a later opening serves no more {sorted(less)[:5]}")
        if more:
            result.problems.append(f"a later opening serves {sorted(more)[:5]} as well")


# ---- around the directory ----


def put_decoys(folder: Path) -> None:
    """Write the decoys next to the directory, which must stay as they are."""
    decoys = folder / "decoys"
    decoys.mkdir()
    (decoys / "file").write_bytes(b"precious " * 20)


def decoys_are_whole(folder: Path) -> bool:
    """Return whether the decoys are as they were."""
    decoys = folder / "decoys"
    names = [path.name for path in decoys.iterdir()]
    return names == ["file"] and (decoys / "file").read_bytes() == b"precious " * 20


def bytes_below(directory: Path) -> dict[str, Any]:
    """Return kind, size and content of all that is below a directory."""
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
