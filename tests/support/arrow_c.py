"""Arrow's C structures made by hand, byte by byte: also such as no library makes.

Buffers are blocks of their exact size, so that AddressSanitizer sees a read beyond. A consumer
moves the structure that it gets; each exported structure counts its release.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = [
    "Array",
    "ArrayRelease",
    "ArrowArray",
    "ArrowSchema",
    "ArrowStream",
    "Exported",
    "SchemaRelease",
    "Stream",
    "StreamRelease",
    "binary",
    "bitmap",
    "forget_released",
    "int64",
    "listed",
    "struct",
    "views",
]


class ArrowSchema(ctypes.Structure):
    """struct ArrowSchema."""


class ArrowArray(ctypes.Structure):
    """struct ArrowArray."""


class ArrowStream(ctypes.Structure):
    """struct ArrowArrayStream."""


SchemaRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowSchema))
ArrayRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArray))
StreamRelease = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowStream))
GetSchema = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowStream), ctypes.POINTER(ArrowSchema))
GetNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ArrowStream), ctypes.POINTER(ArrowArray))
GetError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ArrowStream))

ArrowSchema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowSchema))),
    ("dictionary", ctypes.POINTER(ArrowSchema)),
    ("release", SchemaRelease),
    ("private_data", ctypes.c_void_p),
]
ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", ArrayRelease),
    ("private_data", ctypes.c_void_p),
]
ArrowStream._fields_ = [
    ("get_schema", GetSchema),
    ("get_next", GetNext),
    ("get_last_error", GetError),
    ("release", StreamRelease),
    ("private_data", ctypes.c_void_p),
]

# Exported structures are kept alive: a release may be called after everything else is gone.
_EXPORTS: list[object] = []


def forget_released() -> None:
    """Free the exported structures; the caller knows that all of them were released."""
    _EXPORTS.clear()


_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


@dataclass
class Array:
    """
    A type with its values; what is None is NULL. Everything may be made to lie.

    Attributes:
        buffers: bytes, or NumPy arrays, copied into blocks of their own.
    """

    format: bytes | None
    length: int
    buffers: Sequence[Any] = ()
    children: Sequence[Array | None] = ()
    name: bytes | None = None
    null_count: int = 0
    offset: int = 0
    n_buffers: int | None = None
    n_children: int | None = None
    n_schema_children: int | None = None
    misaligned: int = 0
    is_dictionary: bool = False
    no_children: bool = False
    no_buffers: bool = False


@dataclass
class Exported:
    """An object with `__arrow_c_array__`; `kept` holds the memory, `released` counts."""

    array: Array
    released: list[str] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    is_released: bool = False

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        _EXPORTS.append(self)
        schema, array = self.schema(), self.values()
        if self.is_released:
            array.release = ArrayRelease()
        self.kept += [schema, array]
        return (
            _new_capsule(ctypes.addressof(schema), b"arrow_schema", None),
            _new_capsule(ctypes.addressof(array), b"arrow_array", None),
        )

    def schema(self) -> ArrowSchema:
        """Return the type, with a release that is counted."""
        made = self._schema_of(self.array)

        def release(pointer: Any) -> None:
            self.released.append("schema")
            pointer.contents.release = SchemaRelease()

        made.release = self._keep(SchemaRelease(release))
        return made

    def values(self) -> ArrowArray:
        """Return the values, with a release that is counted."""
        made = self._array_of(self.array)

        def release(pointer: Any) -> None:
            self.released.append("array")
            pointer.contents.release = ArrayRelease()

        made.release = self._keep(ArrayRelease(release))
        return made

    def _keep(self, made: Any) -> Any:
        self.kept.append(made)
        return made

    def _schema_of(self, array: Array) -> ArrowSchema:
        made = ArrowSchema(format=array.format, name=array.name)
        count = len(array.children)
        made.n_children = count
        if array.n_schema_children is not None:
            made.n_children = array.n_schema_children
        if not array.no_children:
            made.children = self._pointers(ArrowSchema, array.children, self._schema_of)
        return self._keep(made)  # type: ignore[no-any-return]

    def _array_of(self, array: Array) -> ArrowArray:
        made = ArrowArray(length=array.length, null_count=array.null_count, offset=array.offset)
        made.n_buffers = len(array.buffers) if array.n_buffers is None else array.n_buffers
        made.n_children = len(array.children) if array.n_children is None else array.n_children
        addresses = (ctypes.c_void_p * max(len(array.buffers), 1))()
        for slot, buffer in enumerate(array.buffers):
            if buffer is not None:
                data = np.frombuffer(bytes(buffer), np.uint8)
                block = self._keep(np.empty(len(data) + array.misaligned, np.uint8))
                block[array.misaligned :] = data
                addresses[slot] = block.ctypes.data + array.misaligned
        if not array.no_buffers:
            made.buffers = self._keep(addresses)
        if not array.no_children:
            made.children = self._pointers(ArrowArray, array.children, self._array_of)
        if array.is_dictionary:
            made.dictionary = ctypes.pointer(self._keep(ArrowArray()))
        return self._keep(made)  # type: ignore[no-any-return]

    def _pointers(
        self, kind: Any, children: Sequence[Array | None], make: Callable[[Array], Any]
    ) -> Any:
        pointers = (ctypes.POINTER(kind) * max(len(children), 1))()
        for slot, child in enumerate(children):
            if child is not None:
                pointers[slot] = ctypes.pointer(make(child))
        return self._keep(pointers)


class Stream:
    """
    An object with `__arrow_c_stream__`: arrays of one type, and an error after them or none.

    Attributes:
        released: what was released so far.
    """

    def __init__(
        self, arrays: Sequence[Array], *, error: bytes | None = None, code: int = 0
    ) -> None:
        self._exported = [Exported(array) for array in arrays]
        self._error = None if error is None else ctypes.create_string_buffer(error)
        self._code = code
        self._kept: list[Any] = []
        self._released: list[str] = []

    @property
    def released(self) -> list[str]:
        """Of the stream and everything it gave."""
        return self._released + [name for each in self._exported for name in each.released]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        _EXPORTS.append(self)
        waiting = list(self._exported)

        def get_schema(stream: Any, target: Any) -> int:
            if not waiting:
                return self._code
            ctypes.pointer(target.contents)[0] = waiting[0].schema()
            return 0

        def get_next(stream: Any, target: Any) -> int:
            if not waiting:
                target.contents.release = ArrayRelease()
                return self._code
            ctypes.pointer(target.contents)[0] = waiting.pop(0).values()
            return 0

        def release(stream: Any) -> None:
            self._released.append("stream")
            stream.contents.release = StreamRelease()

        made = ArrowStream(
            GetSchema(get_schema),
            GetNext(get_next),
            GetError(lambda _: None if self._error is None else ctypes.addressof(self._error)),
            StreamRelease(release),
        )
        self._kept.append(made)
        return _new_capsule(ctypes.addressof(made), b"arrow_array_stream", None)


def bitmap(flags: Sequence[bool]) -> bytes:
    """Return a validity bitmap."""
    return bytes(np.packbits(np.array(flags, np.bool_), bitorder="little"))


def binary(
    cells: Sequence[bytes | None],
    *,
    name: bytes | None = None,
    kind: bytes = b"z",
    offset: int = 0,
) -> Array:
    """Return a column of byte strings; the first `offset` of them are before its beginning."""
    ends = np.cumsum([0, *(len(cell or b"") for cell in cells)])
    offsets = ends.astype(np.int64 if kind in b"ZU" else np.int32)
    valid = [cell is not None for cell in cells]
    return Array(
        kind,
        len(cells) - offset,
        [bitmap(valid), offsets.tobytes(), b"".join(cell or b"" for cell in cells)],
        name=name,
        null_count=valid[offset:].count(False),
        offset=offset,
    )


def views(cells: Sequence[bytes | None], *, name: bytes | None = None, offset: int = 0) -> Array:
    """Return a column of views, the long cells alternating between two buffers."""
    parts, data = [b"", b""], b""
    for slot, cell in enumerate(cells):
        view = np.zeros(4, np.int32)
        if cell is not None:
            view[0] = len(cell)
            if len(cell) <= 12:
                view[1:] = np.frombuffer(cell.ljust(12, b"\0"), np.int32)
            else:
                part = slot % 2
                view[1] = np.frombuffer(cell[:4], np.int32)[0]
                view[2:] = part, len(parts[part])
                parts[part] += cell
        data += view.tobytes()
    valid = [cell is not None for cell in cells]
    sizes = np.array([len(part) for part in parts], np.int64).tobytes()
    return Array(
        b"vz",
        len(cells) - offset,
        [bitmap(valid), data, *parts, sizes],
        name=name,
        null_count=valid[offset:].count(False),
        offset=offset,
    )


def int64(
    values: Sequence[int | None],
    *,
    name: bytes | None = b"timestamp",
    kind: bytes = b"l",
    offset: int = 0,
) -> Array:
    """Return a column of numbers."""
    valid = [value is not None for value in values]
    data = np.array([value or 0 for value in values], np.int64).tobytes()
    return Array(
        kind,
        len(values) - offset,
        [bitmap(valid), data],
        name=name,
        null_count=valid[offset:].count(False),
        offset=offset,
    )


def listed(
    rows: Sequence[Sequence[tuple[bytes, bytes | None]] | None],
    *,
    kind: bytes = b"+l",
    offset: int = 0,
) -> Array:
    """Return a column of headers."""
    entries = [entry for row in rows for entry in row or ()]
    ends = np.cumsum([0, *(len(row or ()) for row in rows)])
    valid = [row is not None for row in rows]
    inner = struct(
        [binary([key for key, _ in entries], kind=b"u"), binary([value for _, value in entries])],
        length=len(entries),
    )
    return Array(
        kind,
        len(rows) - offset,
        [bitmap(valid), ends.astype(np.int64 if kind == b"+L" else np.int32).tobytes()],
        [inner],
        name=b"headers",
        null_count=valid[offset:].count(False),
        offset=offset,
    )


def struct(children: Sequence[Array], *, length: int, offset: int = 0) -> Array:
    """Return structures of these columns, with the given length and offset."""
    return Array(b"+s", length, [None], children, offset=offset)
