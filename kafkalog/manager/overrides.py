"""File of topic settings and unfinished topic changes: `.kafkalog_topics`.

A broker gets these settings from its controller. Here each data directory has the same file; a
broker that gets the directory ignores it. A Java properties file in ASCII:

    #
    #Sat Nov 21 08:01:20 UTC 2026
    <default>/log.retention.ms=3600000  a changed default, under its broker name
    <creating>/bills=12                 a topic that is being created, and its partition count
    <deleting>/receipts=ID@DIR,DIR      a deleted topic: its topic id, "-" without an id, and the
                                        directories that may still have partitions of it; empty:
                                        every partition of that name in any directory.
                                        DIR=MARK+MARK: its partitions at the deletion
    <id>/orders=ID                      the topic id of a topic
    <directory>/ID=/disk1/logs          a data directory of the manager, by its directory id
    orders/retention.ms=-1              topic/key=text
    generation=1763712080000            last line; rises with every change

The file with the highest generation counts, because a directory may have been offline during a
change, or the power failed. The generation is the time of the change, or one more than the last
generation, so that the latest change counts.

Crash points: those of replacing one file, for each directory. A change is kept after a crash if one
of the directories has it; the next start copies it to all.

A topic of several partitions has a note here while it is created or deleted, so that the next start
can finish the operation.

A damaged file is an error: without it, default retention could delete records that a topic keeps.

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
# Instead of a topic id: all partitions of the topic; partitions without an id. Instead of
# directories: all directories.
ANY_ID: Final = ""
NO_ID: Final = "-"
EVERYWHERE: Final = "*"
_GENERATION: Final = "generation"
# Section names, written like a topic's name; they are not valid topic names.
_DEFAULTS: Final = "<default>"
_CREATING: Final = "<creating>"
_DELETING: Final = "<deleting>"
_IDS: Final = "<id>"
_DIRECTORIES: Final = "<directory>"
_OTHERS: Final = (_DEFAULTS, _CREATING, _DELETING, _IDS, _DIRECTORIES)


@dataclass(frozen=True, slots=True)
class Deletion:
    """
    Unfinished deletion of a topic.

    Attributes:
        topic_id: its id as text; "-" without an id, "" for all partitions of its name. Partitions
            without an id belong to every id.
        directories: keys of the data directories that may have partitions of it (see
            `DataDirectory.keys`); "*" for all.
        marks: key of a directory that could be read -> number -> mark, of the partitions in it.
    """

    topic_id: str
    directories: frozenset[str]
    marks: Mapping[str, Mapping[int, PartitionMark]] = field(default_factory=dict)

    def is_of(self, topic_id: str | None, keys: frozenset[str]) -> bool:
        """Return whether a partition with this id, in a directory with these keys, is deleted."""
        same = topic_id is None or self.topic_id in (ANY_ID, topic_id)
        return same and bool(self.directories & (keys | {EVERYWHERE}))

    def fits(self, number: int, keys: frozenset[str], mark: PartitionMark) -> bool:
        """Return whether a partition of the topic is unchanged since its deletion was noted."""
        for key in keys & self.marks.keys():
            noted = self.marks[key].get(number)
            return noted is not None and noted.is_of(mark)
        return True

    def within(self, directories: frozenset[str]) -> Deletion:
        """Return the deletion, limited to these directories."""
        marks = {key: each for key, each in self.marks.items() if key in directories}
        return Deletion(self.topic_id, directories, marks)

    def to_text(self) -> str:
        """Return the text that `from_text` parses."""
        return f"{self.topic_id}@{','.join(sorted(map(self._directory_text, self.directories)))}"

    def _directory_text(self, key: str) -> str:
        if key not in self.marks:
            return quote(key)
        marks = sorted(self.marks[key].items())
        return f"{quote(key)}={'+'.join(f'{number}.{mark.to_text()}' for number, mark in marks)}"

    @classmethod
    def from_text(cls, text: str) -> Deletion:
        """Return the deletion of a text, or raise ValueError."""
        topic_id, at, directories = text.partition("@")
        if not at:
            raise ValueError(f"deletion must be ID@DIRECTORY,..., got {text[:80]!r}")
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
    Content of the file.

    Attributes:
        generation: number above that of every earlier content.
        topics: topic -> dotted key -> text.
        defaults: a broker's key -> text, of changed defaults.
        creating: topics that are being created -> their partition counts.
        deleting: deleted topics -> their unfinished deletions.
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
        """Return other content, with the next generation."""
        topics = {topic: dict(pairs) for topic, pairs in content.topics.items() if pairs}
        return replace(content, generation=max(self.generation + 1, now_ms), topics=topics)


def read_overrides(filesystem: FileSystem, directory: Path) -> SavedOverrides | None:
    """
    Return the content of the directory's file, None if it is missing.

    Raises:
        CorruptStateError: the file is damaged.
        LogStorageError: the file cannot be read.
    """
    path = directory / TOPIC_OVERRIDES
    try:
        with storage_errors(path, doing="reading"):
            data = read_file(filesystem, path, max_bytes=_MAX_BYTES)
        return None if data is None else _parse(data)
    except ValueError as error:
        raise CorruptStateError(
            f"{path}: {error}; repair the file, or remove it if no topic has separate settings",
            path=path,
        ) from error


def _parse(data: bytes) -> SavedOverrides:
    generation: int | None = None
    topics: dict[str, dict[str, str]] = {}
    for pair in parse_properties(data.decode(ENCODING)):
        if pair.key == _GENERATION:
            if re.fullmatch(r"[0-9]{1,19}", pair.value) is None:
                raise ValueError(
                    f"line {pair.line}: generation must be a number, got {pair.value[:40]!r}"
                )
            generation = int(pair.value)
            continue
        topic, slash, key = pair.key.partition("/")
        if not slash or not (topic in _OTHERS or is_topic_name(topic)) or not key:
            raise ValueError(f"line {pair.line}: key must be topic/key, got {pair.key[:80]!r}")
        topics.setdefault(topic, {})[key] = pair.value
    if generation is None:
        raise ValueError("the generation is missing: the file was cut")
    defaults, creating, deleting, ids, directories = (topics.pop(name, {}) for name in _OTHERS)
    for topic, count in creating.items():
        if re.fullmatch(r"[0-9]{1,9}", count) is None:
            raise ValueError(f"partition count of {topic} must be a number, got {count[:40]!r}")
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
        f"{topic}/{key}": text for topic, found in sections for key, text in sorted(found.items())
    }
    # The last line, so that a file that was cut lacks it.
    pairs[_GENERATION] = str(saved.generation)
    with storage_errors(path, doing="writing"):
        replace_file(filesystem, path, format_properties(pairs, now_ms=now_ms).encode("ascii"))
