"""Mutated data directories of a manager: its small files, the names in it, and its partitions.

Images are data directories of a broker with a few of its partitions, and of a manager of this
library, stopped in order and killed. What must hold is as for a partition (`directory_case.py`):
errors are typed, decoys stay, what is served was there, what is whole is served or its loss
reported, a second start answers as the first. A log start that a changed checkpoint names is
believed, as by a broker; where it is above the log's end, the removed segments are reported.
"""

from __future__ import annotations

import logging
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.doctor.examine import examine_directories
from kafkalog.files.names import TOPIC_OVERRIDES
from tests.proof.directory_case import (
    OFFSET_END,
    CaseResult,
    View,
    bases_in,
    bytes_below,
    check_append,
    check_losses,
    check_truth,
    compare,
    decoys_are_whole,
    put_decoys,
    read_log,
)
from tests.proof.directory_contents import READ_BYTES_MAX, Found, look_at
from tests.proof.directory_mutations import CONTENT, mutate, put_file, put_other_kind
from tests.proof.entries import Entry
from tests.proof.partition_images import Image, Served, broker_images, hashed
from tests.support import golden
from tests.support.manual_time import ManualScheduler

__all__ = ["DataImage", "data_images", "own_data_images", "run_data_case", "write_changed"]

logger = logging.getLogger(__name__)

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
RECOVERY_POINT, LOG_START = CHECKPOINTS[:2]
NUMBERS = (0, 1, -1, 2**31 - 1, 2**31, 2**62, 2**63 - 1, 2**63, 10**25)
ODD_NAMES = (
    "-0",
    "orders-",
    "orders--1",
    "orders-00",
    "orders-99999999999",
    "..-0",
    "a b-0",
    "caf\udce9-0",
    "two\nlines-0",
    "x" * 250 + "-0",
    "orders-9",
    "orders-7.0123456789abcdef0123456789abcdef-delete",
    "orders-7.0123456789abcdef0123456789abcdef-future",
    "orders-7.0123456789abcdef0123456789abcdef-stray",
    ".kafkalog_unknown",
    "remote-log-index-cache",
)
SUFFIXES = ("-delete", "-future", "-stray", "-odd", "")
OF_BROKERS = {
    "kafka-4.1": ("deleted-records-0", "epochs-0", "compact-lag-0", "empty-0", "time-roll-0"),
    "kafka-4.1-unclean": ("u-idle-0", "u-append-time-0"),
}
# Files whose damage may refuse a start; damage of any other file takes no other data away.
VITAL = ("meta.properties", ".lock", LOG_START)


@dataclass(frozen=True)
class DataImage:
    """
    One data directory.

    Attributes:
        name: names it in reports.
        files: name -> bytes, of the files in it.
        partitions: the partitions in it.
    """

    name: str
    files: dict[str, bytes]
    partitions: tuple[Image, ...]

    @property
    def size_bytes(self) -> int:
        """The size of all files."""
        return sum(map(len, self.files.values())) + sum(p.size_bytes for p in self.partitions)

    def write(self, folder: Path) -> Path:
        """Write the files below `folder`; return the data directory."""
        directory = folder / "data"
        for image in self.partitions:
            image.write(directory)
        for name, data in self.files.items():
            (directory / name).write_bytes(data)
        return directory


def data_images(folder: Path) -> Iterator[DataImage]:
    """Yield the images; own ones are made below `folder`."""
    yield from own_data_images(folder)
    found = {image.name: image for image in broker_images()}
    for broker, names in OF_BROKERS.items():
        partitions = tuple(found[f"{broker}/{name}"] for name in names)
        source = golden.GOLDEN / broker / "data"
        files = {path.name: path.read_bytes() for path in source.iterdir() if path.is_file()}
        yield DataImage(f"data/{broker}", files, partitions)


def _manager(directory: Path) -> kafkalog.LogManager:
    """Open a manager whose tasks never run."""
    config = kafkalog.ManagerConfig(
        log=kafkalog.LogConfig(
            segment_bytes=1500, index_interval_bytes=100, segment_index_bytes=64 * 1024
        )
    )
    return kafkalog.LogManager([directory], config, scheduler=ManualScheduler())


def own_data_images(folder: Path) -> Iterator[DataImage]:
    """Yield a directory of this library, as a kill leaves it and closed in order."""
    directory = folder / "data"
    truths: dict[str, Any] = {}
    manager = _manager(directory)
    manager.create_topic("orders", 2)
    manager.create_topic("names", 1, {"cleanup.policy": "compact"})
    manager.create_topic("gone", 1)
    for topic, partition in (("orders", 0), ("orders", 1), ("names", 0), ("gone", 0)):
        truth = truths[f"{topic}-{partition}"] = {}
        log = manager.log(topic, partition)
        for number in range(40):
            key, value = b"k%d" % number, b"%s %d " % (topic.encode(), number) * (1 + number % 5)
            timestamp = 1_700_000_000_000 + number
            truth[number] = timestamp, hashed(key), hashed(value)
            log.append([kafkalog.Record(key=key, value=value, timestamp_ms=timestamp)])
    manager.log("orders", 1).delete_records(13)
    manager.delete_topic("gone")
    manager.log("orders", 0).flush()
    yield _image_of("own/data/killed", directory, truths)
    manager.close()
    yield _image_of("own/data/closed", directory, truths)


def _image_of(name: str, directory: Path, truths: dict[str, Any]) -> DataImage:
    partitions = []
    for path in sorted(path for path in directory.iterdir() if path.is_dir()):
        files = {each.name: each.read_bytes() for each in path.iterdir()}
        truth = truths[path.name.split(".")[0]]
        partitions.append(Image(f"{name}/{path.name}", path.name, files, truth))
    files = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    return DataImage(name, files, tuple(partitions))


# ---- changes ----


@dataclass
class _Changed:
    """
    Data directory with its changes.

    Attributes:
        directory: where it is.
        images: of the partitions, by the names of their directories now.
        `said`: what was done.
        first_offsets: least offset that the image knows of, where records below it were deleted.
        is_vital: whether a file was changed without which nothing may be served.
    """

    directory: Path
    images: dict[str, Image]
    said: list[str]
    first_offsets: dict[str, int]
    is_vital: bool = False


def write_changed(image: DataImage, seed: int, folder: Path) -> list[str]:
    """Write what a case opens below `folder`; return what was done to it."""
    return _changed(image, seed, folder).said


def _changed(image: DataImage, seed: int, folder: Path) -> _Changed:
    source = random.Random(seed)
    directory = image.write(folder)
    put_decoys(folder)
    images = {each.partition: each for each in image.partitions}
    made = _Changed(directory, images, [], _offsets(directory / LOG_START))
    if source.random() < 0.4:
        (directory / ".kafka_cleanshutdown").unlink(missing_ok=True)
        made.said.append("no marker of a clean stop")
    for _ in range(source.choice((1, 1, 2, 3))):
        change = source.choice(_CHANGES)
        try:
            said = change(source, made)
        except OSError as error:
            said = f"{change.__name__}: not possible: {error.strerror}"
        made.said.append(said)
        made.is_vital |= any(name in said for name in VITAL)
    return made


def _number(source: random.Random, made: _Changed) -> str:
    """Write a well-formed checkpoint with a number that is wrong."""
    name = source.choice(CHECKPOINTS)
    partition = source.choice(sorted(made.images))
    image = made.images[partition]
    end = max(image.truth, default=0) + 1
    number = source.choice((*NUMBERS, end - 1, end, end + 1, end // 2, 2 * end))
    topic, _, index = partition.split(".")[0].rpartition("-")
    path = made.directory / name
    is_file = path.is_file() and not path.is_symlink()
    lines = path.read_text("utf-8", "replace").splitlines() if is_file else []
    kept = [line for line in lines[2:] if line.rsplit(" ", 2)[:2] != [topic, index]]
    kept.append(f"{topic} {index} {number}")
    put_file(path, "\n".join(["0", str(len(kept)), *kept, ""]).encode())
    return f"{name}: {kept[-1]}"


def _lines(source: random.Random, made: _Changed) -> str:
    """Remove, repeat, exchange or change lines of a small file."""
    name = source.choice(
        [each for each in (*CHECKPOINTS, "meta.properties") if (made.directory / each).is_file()]
        or ["none"]
    )
    path = made.directory / name
    lines = path.read_bytes().splitlines()
    way = source.choice(("remove", "repeat", "exchange", "digits", "no end"))
    place, other = (source.randrange(len(lines) or 1) for _ in range(2))
    if way == "remove":
        del lines[place : place + 1]
    elif way == "repeat":
        lines[place:place] = lines[place : place + 1]
    elif way == "exchange" and lines:
        lines[place], lines[other] = lines[other], lines[place]
    elif way == "digits" and lines:
        number = str(source.choice(NUMBERS)).encode()
        lines[place] = re.sub(rb"-?\d+", number, lines[place], count=1)
    put_file(path, b"\n".join(lines) + (b"" if way == "no end" else b"\n"))
    return f"{name}: {way} at line {place}"


def _content(source: random.Random, made: _Changed) -> str:
    """Change bytes of a small file of the data directory."""
    nothing = Image("", "", {}, {})
    changes = [each for each in CONTENT if each.__name__ not in ("flip_header", "flip_low", "grow")]
    return source.choice(changes)(source, made.directory, nothing)


def _kind(source: random.Random, made: _Changed) -> str:
    """Remove a small file, or put a link, a FIFO, a socket or a folder in its place."""
    names = (*CHECKPOINTS, "meta.properties", ".kafka_cleanshutdown", ".lock", ".kafkalog_topics")
    name = source.choice(names) + source.choice(("", "", ".tmp"))
    path = made.directory / name
    if source.random() < 0.3:
        path.unlink()
        return f"remove {name}"
    return put_other_kind(source, path, made.directory.parent / "decoys")


def _name(source: random.Random, made: _Changed) -> str:
    """Give a partition directory another name, or copy it."""
    before = source.choice(sorted(made.images))
    topic, _, _number = before.split(".")[0].rpartition("-")
    suffix = source.choice(SUFFIXES)
    number = source.choice((0, 1, 2, 7, 2**31 - 1, 2**31, "00", "x"))
    mark = f".{source.randbytes(16).hex()}{suffix}" if suffix.startswith("-") else suffix
    after = f"{topic}-{number}{mark}"
    is_moved = source.random() < 0.5
    if (made.directory / after).exists():
        return f"{after} is there"
    if is_moved:
        shutil.move(made.directory / before, made.directory / after)
    else:
        shutil.copytree(
            made.directory / before, made.directory / after, copy_function=_copy_sparsely
        )
    made.images[after] = made.images[before]
    if is_moved:
        del made.images[before]
    return f"{'move' if is_moved else 'copytree'} {before} to {after}"


def _copy_sparsely(source: str, target: str) -> None:
    """Copy a file's first part, and the length: no image is larger, but with a hole."""
    with Path(source).open("rb") as file, Path(target).open("wb") as copy:
        copy.write(file.read(READ_BYTES_MAX))
        copy.truncate(os.fstat(file.fileno()).st_size)


def _odd(source: random.Random, made: _Changed) -> str:
    """Put a directory or a file with an odd name there."""
    path = made.directory / source.choice(ODD_NAMES)
    kind = source.choice(("directory", "file", "other"))
    if kind == "directory":
        path.mkdir()
    elif kind == "file":
        # There may be a link already, to a decoy.
        put_file(path, b"stray")
    else:
        return put_other_kind(source, path, made.directory.parent / "decoys")
    return f"{kind} {path.name!r}"


def _metadata(source: random.Random, made: _Changed) -> str:
    """Change the topic id of a partition."""
    name = source.choice(sorted(made.images))
    path = made.directory / name / "partition.metadata"
    ids = ("AAAAAAAAAAAAAAAAAAAAAA", "mSdxGhZsR1iYDdSIxeyqWg", "short", "", "\u00e9")
    text = f"version: {source.choice((0, 0, 0, 1, -1))}\ntopic_id: {source.choice(ids)}\n"
    path.write_bytes(text.encode())
    return f"{name}/partition.metadata: {text!r}"


def _partition(source: random.Random, made: _Changed) -> str:
    """Change a partition, as the judge of partitions does."""
    name = source.choice(sorted(made.images))
    said, _ = mutate(source, made.directory / name, made.images[name], links=False)
    return f"{name}: {'; '.join(said)}"


_CHANGES: tuple[Callable[[random.Random, _Changed], str], ...] = (
    _number, _number, _number, _lines, _lines, _content, _content, _kind, _name, _odd, _metadata,
    _partition,
)  # fmt: skip


# ---- judging ----


def run_data_case(image: DataImage, seed: int, folder: Path) -> CaseResult:
    """Write an image below `folder`, change it by the seed, start a manager on it twice."""
    result = CaseResult()
    made = _changed(image, seed, folder)
    result.changes = made.said
    found = {name: look_at(each, made.directory / name) for name, each in made.images.items()}
    starts = _offsets(made.directory / LOG_START)
    durable = _offsets(made.directory / RECOVERY_POINT)
    before = bytes_below(made.directory)
    try:
        examine_directories([made.directory])
    except kafkalog.KafkaLogError as error:
        result.count(f"doctor: {type(error).__name__}")
    if before != bytes_below(made.directory):
        result.problems.append("the doctor changed a directory")
    views = [_start(made, found, result, appends=number == 0) for number in range(2)]
    if None not in views:
        seen = [each for each in views if each is not None]
        _judge(made, found, (starts, durable), seen, result)
    if not decoys_are_whole(folder):
        result.problems.append("a decoy outside the directory was changed")
    return result


def _offsets(path: Path) -> dict[str, int]:
    """
    Return the entries of a well-formed checkpoint, by the names of directories.

    A broker splits a line at white space of every kind, a flipped blank among them.
    """
    if path.is_symlink() or not path.is_file():
        return {}
    blank = rb"[ \t\v\f\r]"
    line = rb"^%s*(\S+)%s+(\d+)%s+(\d+)%s*$" % ((blank,) * 4)
    found = re.findall(line, path.read_bytes(), re.MULTILINE)
    return {
        f"{topic.decode('utf-8', 'replace')}-{int(number)}": int(offset)
        for topic, number, offset in found
    }


def _start(
    made: _Changed, found: dict[str, Found], result: CaseResult, *, appends: bool
) -> dict[str, View] | None:
    """Start a manager; return what each partition serves, None where it does not start."""
    try:
        manager = _manager(made.directory)
    except kafkalog.KafkaLogError as error:
        result.count(f"refused: {type(error).__name__}")
        # Settings that cannot be read could delete what a topic is to keep.
        is_setting = Path(error.path or "").name == TOPIC_OVERRIDES
        if not (made.is_vital or (is_setting and isinstance(error, kafkalog.ConfigError))):
            result.problems.append(f"a start is refused: {error!r}"[:300])
        return None
    views: dict[str, View] = {}
    try:
        for each in manager.partitions():
            name = f"{each.topic}-{each.partition}"
            if name in made.images:
                views[name] = _view_of(manager, each, found[name] if appends else None, result)
        _note_reports(manager, made, views, result)
    finally:
        try:
            manager.close()
        except kafkalog.KafkaLogError as error:
            text = f"closing failed: {error!r}"[:300]
            if isinstance(error, kafkalog.LogStorageError) and made.is_vital:
                result.count("closing refused: a vital file")
            elif not any(view.refused for view in views.values()):
                result.problems.append(text)
    return views


def _view_of(manager: Any, each: Any, found: Found | None, result: CaseResult) -> View:
    view = View()
    try:
        log = manager.log(each.topic, each.partition)
    except kafkalog.KafkaLogError as error:
        view.refused = type(error).__name__
        return view
    try:
        read_log(log, bases_in(log.directory), view, result)
        if found is not None:
            check_append(log, view, found, result)
    except kafkalog.KafkaLogError as error:
        result.problems.append(f"reading or appending failed: {error!r}"[:300])
    return view


def _note_reports(manager: Any, made: _Changed, views: dict[str, View], result: CaseResult) -> None:
    """Compare what is not served as a partition with the reports of the manager."""
    health = manager.health()
    said = {Path(each.path).name for each in health.stray_partitions}
    for directory in health.directories:
        said |= {*directory.kept_aside, *directory.unknown}
        if not directory.is_online:
            result.count("offline, and reported")
            said |= made.images.keys()
    faults = {f"{each.topic}-{each.partition}" for each in health.partitions}
    for name in made.images:
        is_doomed = name.endswith("-delete")
        view = views.get(name)
        if view is None and not is_doomed and name not in said | faults:
            result.problems.append(f"nothing is reported of the directory {name}")
        elif view is not None and view.refused:
            result.count(f"refused: a partition, {view.refused}")
            if name not in said | faults:
                result.problems.append(f"no fault is reported of {name}, which is refused")


def _judge(
    made: _Changed,
    found: dict[str, Found],
    numbers: tuple[dict[str, int], dict[str, int]],
    views: list[dict[str, View]],
    result: CaseResult,
) -> None:
    if views[0].keys() != views[1].keys():
        result.problems.append("a second start has other partitions")
        return
    for name, image in made.images.items():
        pair = [each[name] for each in views if name in each and not each[name].refused]
        kept: list[bytes] = []
        start, durable = (each.get(name, 0) for each in numbers)
        expected = _above(found[name], start, durable)
        believed = len(found[name].whole) - len(expected.whole)
        if believed:
            result.count("whole entries below a log start that is believed", believed)
        removed: list[tuple[str, int, int]] = []
        for view in pair:
            kept = view.kept = [*kept, *view.kept]
            removed += [each for each in view.files if each[1:] == (0, OFFSET_END)]
            view.files += removed
            image_view = replace(view, served=_from(view.served, made.first_offsets.get(name, 0)))
            check_truth(image, image_view, found[name], result)
            check_losses(view, expected, result)
        compare(pair, result)


def _from(served: Served, start: int) -> Served:
    return {offset: found for offset, found in served.items() if offset >= start}


def _above(found: Found, start: int, durable: int) -> Found:
    """
    Leave out what is below a log start; all of it stays where that is above the end.

    What is in a file whose follower begins at or below the start is below it by name. A recovery
    point above the end is believed, and reported as a lost end: the log ended there.
    """

    def is_above(name: str, entry: Entry) -> bool:
        is_below = any(int(name[:20]) < base <= start for base in found.bases)
        return entry.last_offset >= start and not is_below

    whole = [(name, entry) for name, entry in found.whole if is_above(name, entry)]
    if start > max(durable, *(entry.last_offset + 1 for _, entry in found.whole), 0):
        whole = list(found.whole)
    return replace(found, whole=whole, has_all_logs=found.has_all_logs and start == 0)
