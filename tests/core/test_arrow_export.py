"""Tests of exported Arrow structures: moved, released in any order, by any thread, or unread."""

from __future__ import annotations

import ctypes
import gc
import itertools
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kafkalog._core.arrow_export import (
    ArrowBatch,
    ArrowField,
    schema_capsule,
    stream_capsule,
)
from kafkalog._core.row_builder import RowBuilder, row_fields
from kafkalog._core.row_filter import BatchRuns
from kafkalog.errors import CorruptRecordError
from tests.support.arrow_consumer import (
    ArrowArray,
    ArrowSchema,
    Stream,
    columns_of,
    move,
    read_all,
    take,
    types,
)
from tests.support.record_cases import MIXED, MIXED_PAYLOAD, as_batch_header, header_for
from tests.support.record_cases import columns_of as decoded

NAMES = ("offset", "key", "value", "headers")
ROOT = Path(__file__).resolve().parents[2]


class Octets(np.ndarray[Any, Any]):
    """Memory with support for weak references."""


def watched() -> tuple[Octets, weakref.ref[Octets]]:
    """Return a copy of MIXED_PAYLOAD and a weak reference to it."""
    octets = np.frombuffer(MIXED_PAYLOAD, np.uint8).copy().view(Octets)
    return octets, weakref.ref(octets)


def batch_over(data: Any, binary_type: str = "binary_view") -> ArrowBatch:
    """Return a batch whose values are views of `data`, if they are views."""
    header = as_batch_header(header_for(MIXED))
    builder = RowBuilder(NAMES, binary_type=binary_type, rows_max=99, bytes_max=2**30)
    columns = decoded(data, header, 0, len(MIXED_PAYLOAD))
    builder.add(data, columns, 0, BatchRuns(), lasting=True)
    return builder.finish()


def kinds_of(batch: ArrowBatch) -> list[tuple[str, str, bool, Any]]:
    """Return the types of a batch's columns."""
    schema = take(ArrowSchema, batch.__arrow_c_schema__())
    kinds = types(schema)
    schema.release(ctypes.byref(schema))
    return kinds


def test_schema_has_the_requested_columns() -> None:
    """Names, formats, null flags and children of all columns."""
    schema = take(ArrowSchema, schema_capsule(row_fields(NAMES, binary_type="large_binary")))
    pair: list[Any] = [("key", "u", False, []), ("value", "z", True, [])]
    assert [
        ("offset", "l", False, []),
        ("key", "Z", True, []),
        ("value", "Z", True, []),
        ("headers", "+l", False, [("element", "+s", False, pair)]),
    ] == types(schema)
    moved = move(schema)
    moved.release(ctypes.byref(moved))
    assert not moved.release and not schema.release


def test_field_repr_has_name_and_format() -> None:
    """The repr has the name and the type."""
    assert "ArrowField('key', 'z')" == repr(ArrowField("key", "z", True))
    assert "ArrowField('offset', 'l', not null)" == repr(ArrowField("offset", "l", False))
    with pytest.raises(TypeError):
        ArrowField("list", "+l", False, ("element",))  # type: ignore[arg-type]


def test_schema_child_outlives_its_parent() -> None:
    """A consumer may move a child out and release the parent first."""
    schema = take(ArrowSchema, schema_capsule(row_fields(NAMES)))
    headers = move(schema.children[3].contents)
    schema.release(ctypes.byref(schema))
    assert (b"headers", b"+l") == (headers.name, headers.format)
    headers.release(ctypes.byref(headers))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_arrays_are_released_in_any_order(order: tuple[int, ...]) -> None:
    """Batch, array and a child moved out of it: the last release frees the memory."""
    octets, memory = watched()
    batch = batch_over(octets)
    kinds = kinds_of(batch)
    array = take(ArrowArray, batch.__arrow_c_array__()[1])
    value = move(array.children[2].contents)
    del octets
    holders = [batch, array, value]
    del batch
    for slot in order:
        assert memory() is not None
        holder, holders[slot] = holders[slot], None
        if slot:
            if slot == 1 and holders[2] is not None:
                assert len(MIXED) == holder.length
            holder.release(ctypes.byref(holder))
        del holder
        gc.collect()
    assert memory() is None
    assert kinds[2][:2] == ("value", "vz")


def test_array_exported_twice_shows_the_same_bytes() -> None:
    """The two exports are released independently."""
    batch = batch_over(np.frombuffer(MIXED_PAYLOAD, np.uint8))
    kinds = kinds_of(batch)
    first, second = (take(ArrowArray, batch.__arrow_c_array__()[1]) for _ in range(2))
    del batch
    expected = columns_of(first, kinds)
    first.release(ctypes.byref(first))
    assert expected == columns_of(second, kinds)
    assert [entry.value for entry in MIXED] == expected["value"]
    second.release(ctypes.byref(second))


def test_array_released_by_another_thread_frees_its_memory() -> None:
    """ctypes calls `release` without the GIL; the release of views acquires it."""
    octets, memory = watched()
    array = take(ArrowArray, batch_over(octets).__arrow_c_array__()[1])
    del octets
    release = ctypes.cast(array.release, ctypes.CFUNCTYPE(None, ctypes.c_void_p))
    thread = threading.Thread(target=release, args=(ctypes.addressof(array),))
    thread.start()
    thread.join()
    assert memory() is None


def test_unopened_capsules_free_their_memory() -> None:
    """Capsules of an array, a schema, a started stream and a stream not started."""
    octets, memory = watched()
    batch = batch_over(octets)
    fields = batch.fields
    capsules = [batch.__arrow_c_array__(), schema_capsule(fields), stream_capsule(iter(()), fields)]
    stream = stream_capsule(iter([batch, batch]), fields)
    del batch, octets
    del capsules, stream
    gc.collect()
    assert memory() is None


def test_stream_returns_each_batch_and_ends() -> None:
    """A call after the end reports the end again; arrays outlive the stream."""
    octets, memory = watched()
    batch = batch_over(octets)
    kinds = kinds_of(batch)
    stream = Stream(stream_capsule(iter([batch, batch_over(octets, "binary_view")]), batch.fields))
    del batch, octets
    first, second = stream.next(), stream.next()
    assert stream.next() is None and stream.next() is None
    assert (0, None) == (stream.code, stream.last_error())
    stream.release()
    gc.collect()
    assert first is not None and second is not None and memory() is not None
    assert columns_of(first, kinds) == columns_of(second, kinds)
    for array in (first, second):
        array.release(ctypes.byref(array))
    assert memory() is None


def test_read_all_returns_the_cells_of_all_records() -> None:
    """The consumer of these tests reads the cells of the source records."""
    batch = batch_over(np.frombuffer(MIXED_PAYLOAD, np.uint8))
    found = read_all(stream_capsule(iter([batch]), batch.fields))
    assert [entry.key for entry in MIXED] == found["key"]


def broken(batch: ArrowBatch, error: BaseException) -> Iterator[ArrowBatch]:
    """Yield a batch, then fail."""
    yield batch
    raise error


@pytest.mark.parametrize(
    "error, code",
    [
        (CorruptRecordError("bytes \xe9 fail", position=5), 5),
        (ValueError("no such thing"), 22),
        (MemoryError("none left"), 12),
        (KeyboardInterrupt(), 4),
    ],
)
def test_stream_error_is_reported_again_by_later_calls(error: BaseException, code: int) -> None:
    """The message begins with the name of the error; later calls do not report a normal end."""
    batch = batch_over(np.frombuffer(MIXED_PAYLOAD, np.uint8))
    stream = Stream(stream_capsule(broken(batch, error), batch.fields))
    array = stream.next()
    assert array is not None
    array.release(ctypes.byref(array))
    for _ in range(2):
        assert stream.next() is None
        assert (code, f"{type(error).__name__}: {error}") == (stream.code, stream.last_error())
    schema = stream.schema()
    assert 0 == stream.code
    schema.release(ctypes.byref(schema))
    stream.release()


def test_stream_with_an_item_not_a_batch_reports_einval() -> None:
    """The iterator yields an object that is not an Arrow batch."""
    stream = Stream(stream_capsule(iter([object()]), row_fields(NAMES)))  # type: ignore[list-item]
    assert stream.next() is None
    assert 22 == stream.code
    stream.release()


def test_stream_error_without_a_message_is_an_error() -> None:
    """An exception whose `str` fails is not reported as a normal end."""

    class Silent(Exception):  # noqa: N818
        def __str__(self) -> str:
            raise RuntimeError("no words")

    batch = batch_over(np.frombuffer(MIXED_PAYLOAD, np.uint8))
    stream = Stream(stream_capsule(broken(batch, Silent()), batch.fields))
    array = stream.next()
    assert array is not None
    array.release(ctypes.byref(array))
    assert stream.next() is None
    assert (5, "no message") == (stream.code, stream.last_error())
    stream.release()


LATE_RELEASE = """
import atexit, ctypes, sys
from tests.core.test_arrow_export import *
batch = batch_over(np.frombuffer(MIXED_PAYLOAD, np.uint8))
array = take(ArrowArray, batch.__arrow_c_array__()[1])
stream = stream_capsule(iter([batch]), batch.fields)
exits = ctypes.CDLL(None)
# The C library runs this when Python is gone.
exits.__cxa_atexit(ctypes.cast(array.release, ctypes.c_void_p), ctypes.byref(array), None)
keep = ctypes.py_object(array)
ctypes.pythonapi.Py_IncRef(keep)
"""


def test_release_after_the_end_of_python_is_safe() -> None:
    """An exit handler of the C library releases an array over memory of Python."""
    result = subprocess.run(
        [sys.executable, "-c", LATE_RELEASE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (0, "") == (result.returncode, result.stderr)
