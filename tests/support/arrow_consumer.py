"""A consumer of Arrow's C data interface in ctypes, as strict as the specification is.

What pyarrow would do, in Python that shows each step: structures are moved, read, and released by
hand, children apart from their parents too. It needs no library, so that it runs under sanitizers.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

from kafkalog._core.arrow_export import ArrowBatch
from tests.support.arrow_c import (
    ArrayRelease,
    ArrowArray,
    ArrowSchema,
    ArrowStream,
    SchemaRelease,
    StreamRelease,
)

__all__ = [
    "ArrowArray",
    "ArrowSchema",
    "Stream",
    "cells_of",
    "columns_of",
    "move",
    "read_all",
    "take",
    "types",
]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]

_KINDS = {
    ArrowSchema: (b"arrow_schema", SchemaRelease),
    ArrowArray: (b"arrow_array", ArrayRelease),
    ArrowStream: (b"arrow_array_stream", StreamRelease),
}


def move(source: Any) -> Any:
    """Return a structure that has what `source` had; that one counts as released."""
    kind = type(source)
    moved = kind()
    ctypes.memmove(ctypes.byref(moved), ctypes.byref(source), ctypes.sizeof(kind))
    source.release = _KINDS[kind][1]()
    return moved


def take(kind: Any, capsule: object) -> Any:
    """Move a structure out of its capsule."""
    pointer = _pointer_of(ctypes.py_object(capsule), _KINDS[kind][0])
    return move(kind.from_address(pointer))


class Stream:
    """A stream that was taken out of its capsule."""

    def __init__(self, capsule: object) -> None:
        self._stream = take(ArrowStream, capsule)
        self.code = 0

    def schema(self) -> ArrowSchema:
        schema = ArrowSchema()
        self.code = self._stream.get_schema(ctypes.byref(self._stream), ctypes.byref(schema))
        return schema

    def next(self) -> ArrowArray | None:
        """Return the next array; None at the end and at an error, which is in `code`."""
        array = ArrowArray()
        self.code = self._stream.get_next(ctypes.byref(self._stream), ctypes.byref(array))
        return array if array.release else None

    def last_error(self) -> str | None:
        text = self._stream.get_last_error(ctypes.byref(self._stream))
        return None if text is None else ctypes.string_at(text).decode()

    def release(self) -> None:
        self._stream.release(ctypes.byref(self._stream))
        assert not self._stream.release


def types(schema: ArrowSchema) -> list[tuple[str, str, bool, Any]]:
    """Return (name, format, nullable, children) of each child."""
    children = [schema.children[slot].contents for slot in range(schema.n_children)]
    return [
        (each.name.decode(), each.format.decode(), bool(each.flags & 2), types(each))
        for each in children
    ]


def columns_of(array: ArrowArray, kinds: list[tuple[str, str, bool, Any]]) -> dict[str, list[Any]]:
    """Return the cells of each column of a struct array."""
    return {
        name: _cells(array.children[slot].contents, kind, children)
        for slot, (name, kind, _, children) in enumerate(kinds)
    }


def cells_of(batch: ArrowBatch) -> dict[str, list[Any]]:
    """Return the cells of a batch, through its capsules."""
    schema_capsule, capsule = batch.__arrow_c_array__()
    schema, array = take(ArrowSchema, schema_capsule), take(ArrowArray, capsule)
    cells = columns_of(array, types(schema))
    schema.release(ctypes.byref(schema))
    array.release(ctypes.byref(array))
    return cells


def read_all(capsule: object) -> dict[str, list[Any]]:
    """Return the cells of each column of a stream, released as soon as they are read."""
    stream = Stream(capsule)
    schema = stream.schema()
    kinds = types(schema)
    schema.release(ctypes.byref(schema))
    found: dict[str, list[Any]] = {name: [] for name, *_ in kinds}
    for array in _arrays(stream):
        for name, cells in columns_of(array, kinds).items():
            assert array.length == len(cells)
            found[name] += cells
        array.release(ctypes.byref(array))
    assert 0 == stream.code, stream.last_error()
    stream.release()
    return found


def _arrays(stream: Stream) -> Iterator[ArrowArray]:
    while (array := stream.next()) is not None:
        yield array


_FIXED = {"l": "q", "i": "i", "s": "h", "tsm:UTC": "q"}


def _cells(array: ArrowArray, kind: str, children: Any) -> list[Any]:
    valid = _validity(array)
    cells: list[Any]
    if kind in _FIXED:
        code = _FIXED[kind]
        cells = list(_unpack(array, 1, code, array.length))
    elif kind in ("z", "u", "Z"):
        ends = _unpack(array, 1, "q" if kind == "Z" else "i", array.length + 1)
        assert 0 == ends[0]
        octets = _octets(array, 2, ends[-1])
        cells = [octets[ends[row] : ends[row + 1]] for row in range(array.length)]
        if kind == "u":
            cells = [cell.decode() for cell in cells]
    elif kind == "vz":
        cells = _views(array)
    elif kind == "+l":
        ends = _unpack(array, 1, "i", array.length + 1)
        items = _cells(array.children[0].contents, children[0][1], children[0][3])
        assert ends[-1] == len(items)
        cells = [items[ends[row] : ends[row + 1]] for row in range(array.length)]
    else:
        assert "+s" == kind
        columns = columns_of(array, children).values()
        cells = list(zip(*columns, strict=True))
    return [cell if is_valid else None for cell, is_valid in zip(cells, valid, strict=True)]


def _views(array: ArrowArray) -> list[bytes]:
    count = array.n_buffers - 3
    sizes = _unpack(array, array.n_buffers - 1, "q", count)
    blocks = [_octets(array, 2 + slot, size) for slot, size in enumerate(sizes)]
    cells = []
    for row in range(array.length):
        view = _octets(array, 1, 16 * array.length)[16 * row : 16 * row + 16]
        size, prefix, block, start = struct.unpack("=i4sii", view)
        if size <= 12:
            assert bytes(12 - size) == view[4 + size :]
            cells.append(view[4 : 4 + size])
        else:
            cell = blocks[block][start : start + size]
            assert size == len(cell) and prefix == cell[:4]
            cells.append(cell)
    return cells


def _validity(array: ArrowArray) -> list[bool]:
    if array.n_buffers == 0 or not array.buffers[0]:
        assert 0 == array.null_count
        return [True] * array.length
    octets = _octets(array, 0, (array.length + 7) // 8)
    valid = [bool(octets[row >> 3] >> (row & 7) & 1) for row in range(array.length)]
    assert array.null_count == valid.count(False)
    return valid


def _octets(array: ArrowArray, slot: int, size: int) -> bytes:
    assert slot < array.n_buffers
    address = array.buffers[slot]
    assert address is not None
    return ctypes.string_at(address, size)


def _unpack(array: ArrowArray, slot: int, code: str, count: int) -> tuple[int, ...]:
    octets = _octets(array, slot, count * struct.calcsize(code))
    return struct.unpack(f"={count}{code}", octets)
