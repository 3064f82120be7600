"""Indexes that are missing, truncated, padded, out of order or wrong: look-ups stay right."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from kafkalog.files.names import SegmentFiles
from tests.support.golden import snapshot
from tests.support.logs import manual_log, numbered
from tests.support.manual_time import START_MS

RECORDS = 400
CONFIG: dict[str, Any] = {
    "segment_bytes": 2000,
    "index_interval_bytes": 100,
    "segment_index_bytes": 4096,
    "batch_bytes": 200,
}

Damage = Callable[[Path], None]


def entry_size(path: Path) -> int:
    return 8 if path.suffix == ".index" else 12


def missing(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut_inside_an_entry(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:67])


def cut_between_entries(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 3 * entry_size(path)])


def zero_padded(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(50 * entry_size(path)))


def random_bytes(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(path.stat().st_size))


def backwards(path: Path) -> None:
    data, size = path.read_bytes(), entry_size(path)
    entries = [data[start : start + size] for start in range(0, len(data), size)]
    path.write_bytes(b"".join(reversed(entries)))


def shifted(path: Path) -> None:
    """In order, and wrong: each entry has the position or offset of its successor."""
    data, size = path.read_bytes(), entry_size(path)
    if size == 8:
        entries = [struct.unpack_from(">ii", data, start) for start in range(0, len(data), 8)]
        moved = [
            struct.pack(">ii", offset, position) for (offset, _), (_, position) in pairwise(entries)
        ]
    else:
        times = [struct.unpack_from(">qi", data, start) for start in range(0, len(data), 12)]
        moved = [
            struct.pack(">qi", timestamp, offset) for (timestamp, _), (_, offset) in pairwise(times)
        ]
    path.write_bytes(b"".join(moved))


def inside_batches(path: Path) -> None:
    """In order, and each position a few bytes after the start of a batch."""
    data, size = bytearray(path.read_bytes()), entry_size(path)
    for start in range(size - 4, len(data), size):
        (value,) = struct.unpack_from(">i", data, start)
        struct.pack_into(">i", data, start, value + 5)
    path.write_bytes(bytes(data))


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[Damage] = [
    missing,
    empty,
    cut_inside_an_entry,
    cut_between_entries,
    zero_padded,
    random_bytes,
    backwards,
    shifted,
    inside_batches,
    a_directory,
]


@pytest.fixture(name="log_directory")
def fixture_log_directory(directory: Path) -> Path:
    """A log of many segments, closed in order, one timestamp a record."""
    with manual_log(directory, **CONFIG) as log:
        for number in range(0, RECORDS, 5):
            log.append(numbered(number, 5))
        assert len(log.segments()) > 4
    return directory


def bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_damaged_index_lookups_stay_right(
    log_directory: Path, damage: Damage, suffix: str, which: str, read_only: bool
) -> None:
    """Every offset and every time is found; no other segment's index changes on disk."""
    present = bases(log_directory)
    base = {"first": present[0], "middle": present[len(present) // 2], "last": present[-1]}[which]
    victim = log_directory / f"{base:020}{suffix}"
    damage(victim)
    before = snapshot(log_directory) if read_only else {}
    others = {
        path: path.stat().st_ino
        for other in present[:-1]
        if other != base
        for path in SegmentFiles(log_directory, other)
        if path.exists()
    }

    with manual_log(log_directory, **CONFIG, read_only=read_only) as log:
        for offset in range(0, RECORDS, 3):
            record = next(log.read(offset).records())
            assert (offset, START_MS + offset) == (record.offset, record.timestamp_ms)
            found = log.offset_for_timestamp(START_MS + offset)
            assert found is not None
            assert (START_MS + offset, offset) == (found.timestamp_ms, found.offset)
        assert RECORDS == sum(1 for _ in log.records())
        assert not log.corrupt_ranges()

    if read_only:
        assert before == snapshot(log_directory)
    else:
        assert others == {path: path.stat().st_ino for path in others}
        assert not list(log_directory.glob("*.tmp"))
