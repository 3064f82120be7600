"""A slow, obvious reader and writer of one commit of a commit journal, from the layout's text.

It shares nothing with `kafkalog.state.commit_journal`: its own offsets, its own CRC-32C.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.support.reference import crc32c

__all__ = ["BLOCK", "PlainCommit", "commit_bytes", "commits_of", "file_bytes"]

BLOCK = 4096


class PlainCommit(NamedTuple):
    """
    One commit.

    Attributes:
        sequence, first_live: see the layout.
        names: names by number, with their topic ids.
        entries: ("data", number, base offset, position, first offset, end offset, anchor size,
            anchor checksum, bytes) or ("void", number), in order.
    """

    sequence: int
    first_live: int
    names: dict[int, tuple[str, bytes]]
    entries: list[tuple[object, ...]]


def number_at(data: bytes, at: int, size: int) -> int:
    """Return the unsigned number of so many bytes at a position."""
    return int.from_bytes(data[at : at + size], "big")


def commits_of(data: bytes) -> list[PlainCommit]:
    """Return the commits of a file, whose header must be whole, in order of position."""
    for at in (0, BLOCK):
        assert data[at : at + 8] == b"kafkalog"
        assert data[at + 8 : at + 12] == b"\0\1\0\0"
        assert number_at(data, at + 20, 4) == crc32c(data[at : at + 20])
    journal_id = data[12:20]
    found = []
    for at in range(2 * BLOCK, len(data), BLOCK):
        if data[at : at + 8] == b"kkcommit":
            assert data[at + 8 : at + 16] == journal_id
            found.append(_commit(data, at))
    return found


def _commit(data: bytes, at: int) -> PlainCommit:
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
        else:
            assert kind == 3
            entries.append(("void", number))
            place += 8
    assert (place, blob) == (len(table), b"")
    return PlainCommit(number_at(data, at + 16, 8), number_at(data, at + 24, 8), names, entries)


def commit_bytes(journal_id: bytes, commit: PlainCommit) -> bytes:
    """Return a commit as the layout has it, padded to blocks."""
    table, blob = b"", b""
    for number, (name, topic_id) in commit.names.items():
        text = name.encode()
        table += b"\1\0" + len(text).to_bytes(2, "big") + number.to_bytes(4, "big")
        table += topic_id + text
    for entry in commit.entries:
        head = b"\0\0" + int(str(entry[1])).to_bytes(4, "big")
        if entry[0] == "void":
            table += b"\3\0" + head
            continue
        *places, anchor_size, anchor_checksum, body = entry[2:]
        assert isinstance(body, bytes)
        table += b"\2" + bytes([int(str(anchor_size))]) + head
        table += len(body).to_bytes(4, "big") + crc32c(body).to_bytes(4, "big")
        table += b"".join(int(str(each)).to_bytes(8, "big") for each in places)
        table += int(str(anchor_checksum)).to_bytes(4, "big")
        blob += body
    head = b"kkcommit" + journal_id
    head += commit.sequence.to_bytes(8, "big") + commit.first_live.to_bytes(8, "big")
    count = len(commit.names) + len(commit.entries)
    head += b"".join(each.to_bytes(4, "big") for each in (len(table), len(blob), count))
    content = head + crc32c(head + table).to_bytes(4, "big") + table + blob
    return content + bytes(-len(content) % BLOCK)


def file_bytes(journal_id: bytes, commits: list[PlainCommit], size: int = 16 * BLOCK) -> bytes:
    """Return a file of the journal."""
    fields = b"kafkalog\0\1\0\0" + journal_id
    header = (fields + crc32c(fields).to_bytes(4, "big")).ljust(BLOCK, b"\0")
    content = header * 2 + b"".join(commit_bytes(journal_id, each) for each in commits)
    return content.ljust(size, b"\0")
