"""A slow, obvious reader and writer of one commit of a commit journal, from the layout's text.

It shares nothing with `kafkalog.state.commit_journal` and `kafkalog.state.journal_records`: its own
offsets, its own CRC-32C.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.reference import crc32c

__all__ = [
    "BLOCK",
    "PlainCommit",
    "PlainRecord",
    "commit_bytes",
    "commits_of",
    "file_bytes",
    "record_bytes",
    "records_of",
]

BLOCK = 4096

# Timestamp in ms, key, value.
PlainRecord = tuple[int, bytes | None, bytes | None]


class PlainCommit(NamedTuple):
    """
    One commit.

    Attributes:
        sequence, first_live: see the layout.
        names: names by number, with their topic ids.
        entries: ("data", number, base offset, position, first offset, end offset, anchor size,
            anchor checksum, bytes), ("void", number), or ("records", number, first offset, end
            offset, bytes), in order.
    """

    sequence: int
    first_live: int
    names: dict[int, tuple[str, bytes]]
    entries: list[tuple[object, ...]]


def number_at(data: bytes, at: int, size: int) -> int:
    """Return the unsigned number of so many bytes at a position."""
    return int.from_bytes(data[at : at + size], "big")


def record_bytes(records: list[PlainRecord]) -> bytes:
    """Return the data of an entry of records."""
    data = b""
    for timestamp_ms, key, value in records:
        data += timestamp_ms.to_bytes(8, "big", signed=True)
        for field in (key, value):
            data += b"\xff" * 4 if field is None else len(field).to_bytes(4, "big")
        data += (key or b"") + (value or b"")
    return data


def records_of(data: bytes) -> list[PlainRecord]:
    """Return the records of the data of an entry, which must be whole."""
    records: list[PlainRecord] = []
    while data:
        timestamp_ms = int.from_bytes(data[:8], "big", signed=True)
        sizes, data = (data[8:12], data[12:16]), data[16:]
        fields: list[bytes | None] = []
        for size in sizes:
            if size == b"\xff" * 4:
                fields.append(None)
                continue
            count = int.from_bytes(size, "big")
            assert count <= len(data)
            fields.append(data[:count])
            data = data[count:]
        records.append((timestamp_ms, fields[0], fields[1]))
    return records


def commits_of(data: bytes) -> list[PlainCommit]:
    """Return the commits of a file, whose header must be whole, in order of position."""
    version = data[9]
    for at in (0, BLOCK):
        assert data[at : at + 8] == b"kafkalog"
        assert data[at + 8 : at + 12] == bytes([0, version, 0, 0])
        assert version in {1, 2}
        assert number_at(data, at + 20, 4) == crc32c(data[at : at + 20])
    journal_id = data[12:20]
    found = []
    for at in range(2 * BLOCK, len(data), BLOCK):
        if data[at : at + 8] == b"kkcommit":
            assert data[at + 8 : at + 16] == journal_id
            found.append(_commit(data, at, version))
    return found


def _commit(data: bytes, at: int, version: int) -> PlainCommit:
    table_size, data_size, count = (number_at(data, at + 32 + 4 * each, 4) for each in range(3))
    table = data[at + 48 : at + 48 + table_size]
    assert number_at(data, at + 44, 4) == crc32c(data[at : at + 44] + table)
    blob = data[at + 48 + table_size :][:data_size]
    names: dict[int, tuple[str, bytes]] = {}
    entries: list[tuple[object, ...]] = []
    place = 0
    for _ in range(count):
        kind, number = table[place], number_at(table, place + 4, 4)
        if kind == 1:
            size = number_at(table, place + 2, 2)
            topic_id, text = table[place + 8 : place + 24], table[place + 24 : place + 24 + size]
            names[number] = text.decode("ascii"), topic_id
            place += 24 + size
        elif kind == 2:
            size = number_at(table, place + 8, 4)
            body, blob = blob[:size], blob[size:]
            assert number_at(table, place + 12, 4) == crc32c(body)
            numbers = [number_at(table, place + 16 + 8 * each, 8) for each in range(4)]
            anchor = table[place + 1], number_at(table, place + 48, 4)
            entries.append(("data", number, *numbers, *anchor, body))
            place += 52
        elif kind == 4:
            assert version == 2
            assert table[place + 1 : place + 4] == bytes(3)
            size = number_at(table, place + 8, 4)
            body, blob = blob[:size], blob[size:]
            assert number_at(table, place + 12, 4) == crc32c(body)
            offsets = [number_at(table, place + 16 + 8 * each, 8) for each in range(2)]
            entries.append(("records", number, *offsets, body))
            place += 32
        else:
            assert kind == 3
            entries.append(("void", number))
            place += 8
    assert (place, blob) == (len(table), b"")
    return PlainCommit(number_at(data, at + 16, 8), number_at(data, at + 24, 8), names, entries)


def _entry_bytes(entry: tuple[object, ...]) -> tuple[bytes, bytes]:
    """Return an entry, and its bytes in the data."""
    head = b"\0\0" + int(str(entry[1])).to_bytes(4, "big")
    if entry[0] == "void":
        return b"\3\0" + head, b""
    body = entry[-1]
    assert isinstance(body, bytes)
    sizes = len(body).to_bytes(4, "big") + crc32c(body).to_bytes(4, "big")
    numbers = [int(str(each)) for each in entry[2:-1]]
    if entry[0] == "records":
        return b"\4\0" + head + sizes + _longs(numbers), body
    *places, anchor_size, anchor_checksum = numbers
    content = b"\2" + bytes([anchor_size]) + head + sizes + _longs(places)
    return content + anchor_checksum.to_bytes(4, "big"), body


def _longs(numbers: list[int]) -> bytes:
    return b"".join(each.to_bytes(8, "big") for each in numbers)


def commit_bytes(journal_id: bytes, commit: PlainCommit) -> bytes:
    """Return a commit as the layout has it, padded to blocks."""
    table, blob = b"", b""
    for number, (name, topic_id) in commit.names.items():
        text = name.encode()
        table += b"\1\0" + len(text).to_bytes(2, "big") + number.to_bytes(4, "big")
        table += topic_id + text
    for entry in commit.entries:
        entry_bytes, body = _entry_bytes(entry)
        table += entry_bytes
        blob += body
    head = b"kkcommit" + journal_id
    head += commit.sequence.to_bytes(8, "big") + commit.first_live.to_bytes(8, "big")
    count = len(commit.names) + len(commit.entries)
    head += b"".join(each.to_bytes(4, "big") for each in (len(table), len(blob), count))
    content = head + crc32c(head + table).to_bytes(4, "big") + table + blob
    return content + bytes(-len(content) % BLOCK)


def file_bytes(
    journal_id: bytes, commits: list[PlainCommit], size: int = 16 * BLOCK, *, version: int = 1
) -> bytes:
    """Return a file of the journal; version 2 may have records."""
    fields = b"kafkalog" + bytes([0, version, 0, 0]) + journal_id
    header = (fields + crc32c(fields).to_bytes(4, "big")).ljust(BLOCK, b"\0")
    content = header * 2 + b"".join(commit_bytes(journal_id, each) for each in commits)
    return content.ljust(size, b"\0")
