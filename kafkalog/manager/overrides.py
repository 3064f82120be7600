"""What topics say otherwise than the defaults, and what is under way, kept across restarts.

A broker has this from its controller. Here each data directory has a file of it, all of them the
same; a broker that gets the directory passes over it. `.kafkalog_topics`, a Java properties file in
ASCII:

    #
    #Sat Nov 21 08:01:20 UTC 2026
    <default>/log.retention.ms=3600000  a default that was changed, under a broker's name
    <creating>/bills=12                 a topic that is getting so many partitions
    <deleting>/receipts=ID@DIR,DIR      one that was deleted: its topic id, "-" where it has none,
                                        and the directories that may still have partitions of it;
                                        empty: every partition of that name, wherever it lies.
                                        DIR=MARK+MARK: the partitions that it had then
    <id>/orders=ID                      the topic id of a topic
    <directory>/ID=/disk1/logs          a data directory of the manager, by its directory id
    orders/retention.ms=-1              topic/key=text
    generation=1763712080000            last; rises with every change

Of several directories the file with the highest generation counts: one may have been offline, or
the power may have gone, when it was written. The generation is the time of the change, or one more
than the last, so that what was changed later counts.

Crash points: those of replacing one file, for each directory. A change that was begun is there
after a crash if one of the directories has it, and then in all.

Topics of several partitions are noted here while they are made or deleted, so that the next start
can bring that to its end.

A file that is damaged is an error and not nothing: without what it says the defaults would delete
what a topic is to keep.

Thread-safety: pure functions over the disk; the manager's lock is held.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from kafkalog.errors import CorruptStateError
from kafkalog.files.atomic_files import read_file, replace_file
from kafkalog.files.errors import storage_errors
from kafkalog.files.filesystem import FileSystem
from kafkalog.files.names import TOPIC_OVERRIDES, is_topic_name
from kafkalog.java_properties import ENCODING, parse_properties
from kafkalog.manager.deletion_marks import PartitionMark
from kafkalog.state.meta_properties import format_properties

__all__ = [
    "ANY_ID",
    "EVERYWHERE",
    "NO_ID",
    "Deletion",
    "SavedOverrides",
    "read_overrides",
    "write_overrides",
]

_MAX_BYTES: Final = 128 * 1024 * 1024
# In place of a topic id: of every partition of the topic, of those without an id. In place of
# directories: all that there are.
ANY_ID: Final = ""
NO_ID: Final = "-"
EVERYWHERE: Final = "*"
_GENERATION: Final = "generation"
# These stand where a topic's name does; no topic can be called so.
_DEFAULTS: Final = "<default>"
_CREATING: Final = "<creating>"
_DELETING: Final = "<deleting>"
_IDS: Final = "<id>"
_DIRECTORIES: Final = "<directory>"
_OTHERS: Final = (_DEFAULTS, _CREATING, _DELETING, _IDS, _DIRECTORIES)


@dataclass(frozen=True, slots=True)
class Deletion:
    """
    A topic that was deleted, and what is left to do of it.

    Attributes:
        topic_id: its id as text; "-" where it has none, "" for whatever has its name. Partitions
            without an id belong to any.
        directories: keys of the data directories that may have partitions of it (see
            `DataDirectory.keys`); "*" for all.
        marks: key of a directory that could be read -> number -> mark, of the partitions in it.
    """

    topic_id: str
    directories: frozenset[str]
    marks: Mapping[str, Mapping[int, PartitionMark]] = field(default_factory=dict)

    def is_of(self, topic_id: str | None, keys: frozenset[str]) -> bool:
        """Return whether a partition with this id, in a directory with these keys, is meant."""
        same = topic_id is None or self.topic_id in (ANY_ID, topic_id)
        return same and bool(self.directories & (keys | {EVERYWHERE}))

    def fits(self, number: int, keys: frozenset[str], mark: PartitionMark) -> bool:
        """Return whether a partition of the topic is what it was when the deletion was noted."""
        for key in keys & self.marks.keys():
            noted = self.marks[key].get(number)
            return noted is not None and noted.is_of(mark)
        return True

    def within(self, directories: frozenset[str]) -> Deletion:
        """Return what is left to do where only these directories may have partitions."""
        marks = {key: each for key, each in self.marks.items() if key in directories}
        return Deletion(self.topic_id, directories, marks)

    def to_text(self) -> str:
        """Return the text that `from_text` takes."""
        return f"{self.topic_id}@{','.join(sorted(map(self._directory_text, self.directories)))}"

    def _directory_text(self, key: str) -> str:
        if key not in self.marks:
            return quote(key)
        marks = sorted(self.marks[key].items())
        return f"{quote(key)}={'+'.join(f'{number}.{mark.to_text()}' for number, mark in marks)}"

    @classmethod
    def from_text(cls, text: str) -> Deletion:
        """Return what a text describes."""
        topic_id, at, directories = text.partition("@")
        if not at:
            raise ValueError(f"{text[:80]!r}, where ID@DIRECTORY,... belongs")
        keys, marks = set(), {}
        for part in filter(None, directories.split(",")):
            name, equals, marked = part.partition("=")
            key = unquote(name)
            keys.add(key)
            if equals:
                marks[key] = dict(map(_parse_mark, filter(None, marked.split("+"))))
        return cls(topic_id, frozenset(keys), marks)


def _parse_mark(text: str) -> tuple[int, PartitionMark]:
    number, _, mark = text.partition(".")
    return int(number), PartitionMark.from_text(mark)


@dataclass(frozen=True, slots=True)
class SavedOverrides:
    """
    The content of the file.

    Attributes:
        generation: higher than that of every earlier one.
        topics: topic -> dotted key -> text.
        defaults: a broker's key -> text, of defaults that were changed.
        creating: topics that are being made -> how many partitions they get.
        deleting: topics that were deleted -> of which id, and where partitions of them may be yet.
        ids: topic -> topic id, as text.
        directories: directory id, as text -> path, of all directories that were ever in use.
    """

    generation: int = 0
    topics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    creating: Mapping[str, int] = field(default_factory=dict)
    deleting: Mapping[str, tuple[Deletion, ...]] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    directories: Mapping[str, str] = field(default_factory=dict)

    def followed_by(self, content: SavedOverrides, *, now_ms: int) -> SavedOverrides:
        """Return what comes after this, with another content."""
        said = {topic: dict(pairs) for topic, pairs in content.topics.items() if pairs}
        return replace(content, generation=max(self.generation + 1, now_ms), topics=said)


def read_overrides(filesystem: FileSystem, directory: Path) -> SavedOverrides | None:
    """
    Return what the directory's file says, None where there is none.

    Raises:
        CorruptStateError: it is damaged.
        LogStorageError: it cannot be read.
    """
    path = directory / TOPIC_OVERRIDES
    try:
        with storage_errors(path, doing="reading"):
            data = read_file(filesystem, path, max_bytes=_MAX_BYTES)
        return None if data is None else _parse(data)
    except ValueError as error:
        raise CorruptStateError(
            f"{path}: {error}; put it right, or remove it if no topic has settings of its own",
            path=path,
        ) from error


def _parse(data: bytes) -> SavedOverrides:
    generation: int | None = None
    topics: dict[str, dict[str, str]] = {}
    for pair in parse_properties(data.decode(ENCODING)):
        if pair.key == _GENERATION:
            if re.fullmatch(r"[0-9]{1,19}", pair.value) is None:
                raise ValueError(f"line {pair.line}: {pair.value[:40]!r} is no generation")
            generation = int(pair.value)
            continue
        topic, slash, key = pair.key.partition("/")
        if not slash or not (topic in _OTHERS or is_topic_name(topic)) or not key:
            raise ValueError(f"line {pair.line}: {pair.key[:80]!r}, where topic/key belongs")
        topics.setdefault(topic, {})[key] = pair.value
    if generation is None:
        raise ValueError("no generation: the file was cut")
    defaults, creating, deleting, ids, directories = (topics.pop(name, {}) for name in _OTHERS)
    for topic, count in creating.items():
        if re.fullmatch(r"[0-9]{1,9}", count) is None:
            raise ValueError(f"{count[:40]!r} is no number of partitions for {topic}")
    return SavedOverrides(
        generation,
        topics,
        defaults,
        {topic: int(count) for topic, count in creating.items()},
        {topic: _parse_deletions(text) for topic, text in deleting.items()},
        ids,
        directories,
    )


def _parse_deletions(text: str) -> tuple[Deletion, ...]:
    if not text:
        return (Deletion(ANY_ID, frozenset({EVERYWHERE})),)
    return tuple(map(Deletion.from_text, text.split(" ")))


def _deletions_text(deletions: tuple[Deletion, ...]) -> str:
    return " ".join(each.to_text() for each in deletions)


def write_overrides(
    filesystem: FileSystem, directory: Path, saved: SavedOverrides, *, now_ms: int
) -> None:
    """
    Write the directory's file; on the disk when this returns.

    Raises:
        LogStorageError: the disk refused.
    """
    path = directory / TOPIC_OVERRIDES
    sections: list[tuple[str, Mapping[str, str]]] = [
        (_DEFAULTS, saved.defaults),
        (_CREATING, {topic: str(count) for topic, count in saved.creating.items()}),
        (_DELETING, {topic: _deletions_text(each) for topic, each in saved.deleting.items()}),
        (_IDS, saved.ids),
        (_DIRECTORIES, saved.directories),
        *sorted(saved.topics.items()),
    ]
    pairs = {
        f"{topic}/{key}": text for topic, said in sections for key, text in sorted(said.items())
    }
    # Last: a file that was cut has none.
    pairs[_GENERATION] = str(saved.generation)
    with storage_errors(path, doing="writing"):
        replace_file(filesystem, path, format_properties(pairs, now_ms=now_ms).encode("ascii"))
