"""Bytes of Kafka's protocol: requests that are read, responses that are written.

The types of messages are those of the package `kio`, which makes them from Kafka's own schemas. Its
writer is used. Its reader is not: it reserves memory for as many elements as a client claims, and
aborts the process. `read_message` compares each length with the bytes that are left, and counts
the elements of all arrays.

A message has different fields in each version. `Request.make` leaves out those that its version
does not have.

Thread-safety: no state, but for the compiled readers; a request belongs to one task.
"""

from __future__ import annotations

import dataclasses
import io
import struct
import types
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, Final, NamedTuple, get_args, get_origin
from uuid import UUID

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.constants import EntityType

__all__ = [
    "API_VERSIONS",
    "FETCH",
    "NO_TIME",
    "SUPPORTED",
    "ErrorCode",
    "MalformedRequestError",
    "Request",
    "UnsupportedRequestError",
    "encode_entity",
    "read_request",
    "read_unsigned_varint",
    "unsigned_varint",
]

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
API_VERSIONS, CREATE_TOPICS, INIT_PRODUCER_ID = 18, 19, 22

# API key -> lowest and highest version. Produce 13 and Fetch 13 have topic ids instead of names.
SUPPORTED: Final = {
    PRODUCE: (3, 11),
    FETCH: (4, 12),
    LIST_OFFSETS: (1, 7),
    METADATA: (0, 12),
    OFFSET_COMMIT: (2, 9),
    OFFSET_FETCH: (1, 9),
    FIND_COORDINATOR: (0, 4),
    API_VERSIONS: (0, 4),
    CREATE_TOPICS: (2, 7),
    INIT_PRODUCER_ID: (0, 5),
}
# Largest number of elements in all arrays of a request; each is an object of some hundred bytes.
ELEMENT_COUNT_MAX: Final = 25_000
NO_TIME: Final = timedelta(0)

_HEAD: Final = struct.Struct(">hhi")


class MalformedRequestError(Exception):
    """The bytes break the format of requests; the connection has to be closed."""


class UnsupportedRequestError(Exception):
    """
    The API or its version is not served.

    Attributes:
        api_key, version, correlation_id: of the request.
    """

    def __init__(self, api_key: int, version: int, correlation_id: int) -> None:
        super().__init__(f"API {api_key} version {version} is not served")
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id


class Request(NamedTuple):
    """
    A request.

    Attributes:
        api_key, version, correlation_id, client_id: of its header.
        body: a request type of `kio`. Its records are a view of the request's bytes.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any

    def make(self, name: str, /, **values: Any) -> Any:
        """Return a part of the response, without the fields that its version does not have."""
        return _make(_response_part(self.api_key, self.version, name), values)

    def response(self, **values: Any) -> Any:
        """Return the response, as `make`."""
        return _make(_response_type(self.api_key, self.version), values)

    def encode(self, **values: Any) -> bytes:
        """Return the bytes of the response with its header and length."""
        body = self.header() + encode_entity(self.response(**values))
        return len(body).to_bytes(4) + body

    def header(self) -> bytes:
        """Return the response's header, which begins after the length."""
        kind = _response_type(self.api_key, self.version)
        return encode_entity(kind.__header_schema__(correlation_id=self.correlation_id))

    @property
    def is_flexible(self) -> bool:
        """True if the response has compact arrays and tagged fields."""
        flexible: bool = _response_type(self.api_key, self.version).__flexible__
        return flexible


@cache
def _request_type(api_key: int, version: int) -> Any:
    return load_request_schema(api_key, version)


@cache
def _response_type(api_key: int, version: int) -> Any:
    return load_response_schema(api_key, version)


@cache
def _response_part(api_key: int, version: int, name: str) -> Any:
    return getattr(load_payload_module(api_key, version, EntityType.response), name)


def _make(kind: Any, values: dict[str, Any]) -> Any:
    names = _field_names(kind)
    return kind(**{name: value for name, value in values.items() if name in names})


@cache
def _field_names(kind: Any) -> frozenset[str]:
    return frozenset(field.name for field in dataclasses.fields(kind))


def encode_entity(entity: Any) -> bytes:
    """Return the bytes of a message or of a part of one."""
    with io.BytesIO() as buffer:
        entity_writer(type(entity))(buffer, entity)
        return buffer.getvalue()


def unsigned_varint(value: int) -> bytes:
    """Return the bytes of an unsigned number of variable length."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


# ---------------------------------------------------------------------------------------- reading


def read_request(data: memoryview) -> Request:
    """
    Return the request of a frame, given without its length.

    Raises:
        UnsupportedRequestError: its API or version is not served.
        MalformedRequestError: the bytes break the format of requests.
    """
    try:
        api_key, version, correlation_id = _HEAD.unpack_from(data)
        lowest, highest = SUPPORTED.get(api_key, (1, 0))
        if not lowest <= version <= highest:
            raise UnsupportedRequestError(api_key, version, correlation_id)
        kind = _request_type(api_key, version)
        cursor = _Cursor(data)
        header: Any = reader_of(kind.__header_schema__)(cursor)
        body = reader_of(kind)(cursor)
    except (struct.error, UnicodeDecodeError, OverflowError) as error:
        raise MalformedRequestError(str(error)) from error
    return Request(api_key, version, correlation_id, header.client_id, body)


class _Cursor:
    """A position in the bytes of a request."""

    __slots__ = ("data", "element_count", "position")

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.position = 0
        self.element_count = 0

    def take(self, size: int) -> memoryview:
        """Return the next bytes; MalformedRequestError if there are fewer."""
        start = self.position
        if not 0 <= size <= len(self.data) - start:
            raise MalformedRequestError(
                f"a field of {size} bytes at {start} of a request of {len(self.data)}"
            )
        self.position = start + size
        return self.data[start : self.position]

    def count_elements(self, count: int) -> int:
        """Return the length of an array, if the request may have so many elements."""
        self.element_count += count
        if count > len(self.data) - self.position or self.element_count > ELEMENT_COUNT_MAX:
            raise MalformedRequestError(f"an array of {count} elements at {self.position}")
        return count


_Reader = Callable[[_Cursor], Any]


def _number(code: str) -> _Reader:
    form = struct.Struct(">" + code)
    size = form.size

    def read(cursor: _Cursor) -> Any:
        (value,) = form.unpack_from(cursor.data, cursor.position)
        cursor.position += size
        return value

    return read


def read_unsigned_varint(cursor: _Cursor) -> int:
    """Return an unsigned number of variable length, of at most five bytes."""
    value = 0
    for shift in range(0, 35, 7):
        (byte,) = cursor.take(1)
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value
    raise MalformedRequestError(f"a number of more than five bytes at {cursor.position}")


def _compact_length(cursor: _Cursor) -> int:
    """Return a length, -1 for null."""
    return read_unsigned_varint(cursor) - 1


_int16, _int32, _int64 = _number("h"), _number("i"), _number("q")
_NUMBERS: Final = {
    "int8": _number("b"),
    "int16": _int16,
    "int32": _int32,
    "int64": _int64,
    "uint16": _number("H"),
    "bool": _number("?"),
    "timedelta_i32": lambda cursor: timedelta(milliseconds=_int32(cursor)),
    "timedelta_i64": lambda cursor: timedelta(milliseconds=_int64(cursor)),
    "uuid": lambda cursor: _uuid(bytes(cursor.take(16))),
}


def _uuid(data: bytes) -> UUID | None:
    return UUID(bytes=data) if any(data) else None


def _text(length: _Reader) -> _Reader:
    def read(cursor: _Cursor) -> str | None:
        size = length(cursor)
        return None if size == -1 else str(cursor.take(size), "utf-8")

    return read


def _bytes(length: _Reader) -> _Reader:
    def read(cursor: _Cursor) -> memoryview | None:
        size = length(cursor)
        return None if size == -1 else cursor.take(size)

    return read


def _array(length: _Reader, element: _Reader) -> _Reader:
    def read(cursor: _Cursor) -> tuple[Any, ...] | None:
        count = length(cursor)
        if count == -1:
            return None
        if count < 0:
            raise MalformedRequestError(f"an array of {count} elements at {cursor.position}")
        return tuple([element(cursor) for _ in range(cursor.count_elements(count))])

    return read


def _not_null(read: _Reader, name: str) -> _Reader:
    def read_value(cursor: _Cursor) -> Any:
        value = read(cursor)
        if value is None:
            raise MalformedRequestError(f"{name} must not be null")
        return value

    return read_value


@cache
def reader_of(kind: Any) -> _Reader:
    """Return the function that reads a message, or a part of one."""
    plain: list[tuple[str, _Reader]] = []
    tagged: dict[int, tuple[str, _Reader]] = {}
    for field in dataclasses.fields(kind):
        is_client_id = kind.__name__ == "RequestHeader" and field.name == "client_id"
        read = _field_reader(field, kind.__flexible__ and not is_client_id)
        if (tag := field.metadata.get("tag")) is None:
            plain.append((field.name, read))
        else:
            tagged[tag] = field.name, read
    is_flexible = kind.__flexible__

    def read_entity(cursor: _Cursor) -> Any:
        values = {name: read(cursor) for name, read in plain}
        if is_flexible:
            _read_tags(cursor, tagged, values)
        return kind(**values)

    return read_entity


def _read_tags(
    cursor: _Cursor, tagged: dict[int, tuple[str, _Reader]], values: dict[str, Any]
) -> None:
    for _ in range(cursor.count_elements(read_unsigned_varint(cursor))):
        tag = read_unsigned_varint(cursor)
        content = cursor.take(read_unsigned_varint(cursor))
        if tag in tagged:
            name, read = tagged[tag]
            inner = _Cursor(content)
            inner.element_count = cursor.element_count
            values[name] = read(inner)
            cursor.element_count = inner.element_count


def _field_reader(field: dataclasses.Field[Any], is_flexible: bool) -> _Reader:
    kind: Any = field.type
    is_nullable = False
    if get_origin(kind) is types.UnionType:
        (kind,) = [each for each in get_args(kind) if each is not type(None)]
        is_nullable = True
    if get_origin(kind) is tuple:
        element: Any = get_args(kind)[0]
        if _is_message(element):
            read = reader_of(element)
        else:
            read = _not_null(_value_reader(field, is_flexible), field.name)
        read = _array(_compact_length if is_flexible else _int32, read)
    elif _is_message(kind):
        assert not is_nullable, f"a structure that may be null: {field.name}"
        return reader_of(kind)
    else:
        read = _value_reader(field, is_flexible)
        is_nullable = is_nullable or field.metadata["kafka_type"] in _NUMBERS
    return read if is_nullable else _not_null(read, field.name)


def _is_message(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind)


def _value_reader(field: dataclasses.Field[Any], is_flexible: bool) -> _Reader:
    kind = field.metadata["kafka_type"]
    if kind == "string":
        return _text(_compact_length if is_flexible else _int16)
    if kind in ("bytes", "records"):
        return _bytes(_compact_length if is_flexible else _int32)
    return _NUMBERS[kind]
