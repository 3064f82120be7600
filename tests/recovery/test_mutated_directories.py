"""Directories damaged at random, seed by seed: no crash, no hang, no invented record."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog import KafkaLogError
from tests.support.damage import flip, forget_shutdown, splice, truncate, zero_range
from tests.support.logs import manual_log, numbered
from tests.support.old_logs import LOG_KINDS, chapters_of, write_chapters

RECORDS = 120
SETTINGS: dict[str, Any] = {"segment_bytes": 1500, "index_interval_bytes": 100, "batch_bytes": 150}

Mutation = Callable[[random.Random, Path, list[Path]], None]


def flip_bits(source: random.Random, path: Path, _files: list[Path]) -> None:
    for _ in range(source.randrange(1, 9)):
        flip(path, source.randrange(path.stat().st_size), 1 << source.randrange(8))


def cut(source: random.Random, path: Path, _files: list[Path]) -> None:
    truncate(path, source.randrange(path.stat().st_size))


def extend(source: random.Random, path: Path, _files: list[Path]) -> None:
    splice(path, path.stat().st_size, source.randbytes(source.randrange(1, 300)))


def insert(source: random.Random, path: Path, _files: list[Path]) -> None:
    splice(path, source.randrange(path.stat().st_size), source.randbytes(source.randrange(1, 90)))


def zero(source: random.Random, path: Path, _files: list[Path]) -> None:
    position = source.randrange(path.stat().st_size)
    zero_range(path, position, source.randrange(path.stat().st_size - position) + 1)


def overwrite(source: random.Random, path: Path, files: list[Path]) -> None:
    """Put another file of the log, or a part of it, into this one."""
    other = source.choice(files).read_bytes()
    start = source.randrange(len(other))
    splice(path, source.randrange(path.stat().st_size), other[start:], replacing=len(other))


def swap(source: random.Random, path: Path, files: list[Path]) -> None:
    """Give two files each other's name."""
    other = source.choice([file for file in files if file.suffix == path.suffix])
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


def lose(_source: random.Random, path: Path, _files: list[Path]) -> None:
    path.unlink()


MUTATIONS: list[Mutation] = [flip_bits, cut, extend, insert, zero, overwrite, swap, lose]


@pytest.fixture(name="pristine_old", scope="module")
def fixture_pristine_old(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[bytes]]:
    """A log of every magic and codec in several segments, and the values of its records."""
    directory = tmp_path_factory.mktemp("old") / "orders-0"
    plan = [entry for entries in LOG_KINDS.values() for entry in entries]
    chapters = chapters_of(plan)
    for number in range(0, len(chapters), 5):
        write_chapters(directory, chapters[number : number + 5])
    with manual_log(directory, **SETTINGS) as log:
        values = {record.value or b"" for record in log.records()}
    return directory, values


@pytest.fixture(name="pristine", scope="module")
def fixture_pristine(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[bytes]]:
    """A log of several segments, and the values of its records."""
    directory = tmp_path_factory.mktemp("pristine") / "orders-0"
    with manual_log(directory, **SETTINGS) as log:
        for number in range(0, RECORDS, 4):
            log.append(numbered(number, 4))
        values = {record.value or b"" for record in log.records()}
    return directory, values


@pytest.mark.parametrize("seed", range(120))
def test_mutated_directory_opens_and_serves_only_written_records(
    pristine: tuple[Path, set[bytes]], directory: Path, seed: int
) -> None:
    """Read-only and for writing: typed errors at most, values that were appended, and appends."""
    mutate_and_check(pristine, directory, seed)


@pytest.mark.parametrize("seed", range(1000, 1060))
def test_mutated_old_directory_opens_and_serves_only_written_records(
    pristine_old: tuple[Path, set[bytes]], directory: Path, seed: int
) -> None:
    """The same with messages of v0 and v1, plain and compressed, between batches of v2."""
    mutate_and_check(pristine_old, directory, seed)


def mutate_and_check(pristine: tuple[Path, set[bytes]], directory: Path, seed: int) -> None:
    """Damage a copy at random, and check its records and an append."""
    source = random.Random(seed)
    shutil.copytree(pristine[0], directory)
    for _ in range(source.randrange(1, 4)):
        names = [
            path
            for path in sorted(directory.iterdir())
            if path.suffix in (".log", ".index", ".timeindex") and path.stat().st_size
        ]
        if names:
            source.choice(MUTATIONS)(source, source.choice(names), names)
    if source.random() < 0.7:
        forget_shutdown(directory)
    if not list(directory.glob("*.log")):
        return

    for read_only in (True, False):
        with manual_log(directory, read_only=read_only, **SETTINGS) as log:
            served = list(log.records(on_corrupt="skip"))
            for offset in range(log.log_start_offset, log.log_end_offset, 17):
                try:
                    log.read(offset).next_offset  # noqa: B018 - decodes what it returns
                    log.offset_for_timestamp(offset * 1000)
                except KafkaLogError as error:
                    assert error.path is not None
        assert {record.value for record in served} <= pristine[1]
        offsets = [record.offset for record in served]
        assert sorted(set(offsets)) == offsets

    with manual_log(directory, **SETTINGS) as log:
        info = log.append(numbered(RECORDS, 1))
        assert [b"v%d" % RECORDS] == [record.value for record in log.records(info.first_offset)]
