"""Records as lines: text that fits the terminal, or a JSON object for each record.

Text is for people: `offset  time  key  value  headers`, with a tab between the fields, control
characters escaped, and on a terminal cut at its width. JSON is exact: bytes that are not UTF-8 are
`{"base64": "..."}`.

Thread-safety: one caller at a time.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import sys
from collections.abc import Iterable
from typing import Any, Final

from kafkalog._core.record import Record
from kafkalog.cli.columns import output_width
from kafkalog.cli.large_values import LARGE_BYTES, json_pieces, text_pieces
from kafkalog.cli.reports import Report
from kafkalog.cli.streams import escape
from kafkalog.cli.units import time_text
from kafkalog.errors import ConfigError
from kafkalog.log.corrupt_ranges import CorruptRange
from kafkalog.model import TopicPartition

__all__ = ["RecordWriter", "parse_bytes", "report_range"]

_ESCAPES: Final = str.maketrans({"\n": "\\n", "\t": "\\t"})
_TAB: Final = 8


class RecordWriter:
    """
    Writes records to standard output.

    Args:
        form: form of keys, values and headers: "text", "hex", "base64", "json" (as text if it is
            none), or "auto": records of internal topics decoded, others as text.
        as_json: True to write a JSON object for each record.
        has_partition: True to begin each line of text with the partition.
        has_mark: True to begin each line of text with a star for a match, or a blank.
        is_full: True to never cut a line of text.
    """

    def __init__(
        self,
        form: str,
        *,
        as_json: bool,
        has_partition: bool = False,
        has_mark: bool = False,
        is_full: bool = False,
    ) -> None:
        self._form = form
        self._as_json = as_json
        self._has_partition = has_partition
        self._has_mark = has_mark
        self._width = None if is_full else output_width()

    def write(
        self, partition: TopicPartition, record: Record, *, is_match: bool | None = None
    ) -> None:
        """Write a record; of a search with `is_match`."""
        value = record.value
        if value is not None and len(value) > LARGE_BYTES and self._is_in_pieces(partition.topic):
            self._write_large(partition, record, value, is_match)
            return
        if self._as_json:
            fields = self._fields(partition, record)
            if is_match is not None:
                fields["is_match"] = is_match
            line = json.dumps(fields, separators=(",", ":"))
        else:
            line = self._line(partition, record)
            if self._has_mark:
                line = f"{'*' if is_match else ' '} {line}"
        sys.stdout.write(line + "\n")

    def _is_in_pieces(self, topic: str) -> bool:
        """Return whether a large value of a topic is written whole and as it is."""
        if self._form == "json" or (self._form == "auto" and topic.startswith("__")):
            return False
        return self._as_json or self._width is None

    def _write_large(
        self, partition: TopicPartition, record: Record, value: bytes, is_match: bool | None
    ) -> None:
        """Write a record whose value is not in memory as text; it is the last member of JSON."""
        if self._as_json:
            fields = self._fields(partition, record, has_value=False)
            if is_match is not None:
                fields["is_match"] = is_match
            sys.stdout.write(json.dumps(fields, separators=(",", ":"))[:-1] + ',"value":')
            sys.stdout.writelines(json_pieces(value, self._form))
            sys.stdout.write("}\n")
            return
        mark = ("* " if is_match else "  ") if self._has_mark else ""
        cells = self._cells(partition, record, self._text(record.key), "")
        headers = [f"{name}={self._text(data)}" for name, data in record.headers]
        sys.stdout.write(mark + _joined(cells))
        sys.stdout.writelines(text_pieces(value, self._form))
        sys.stdout.write("".join("\t" + _joined([each]) for each in headers) + "\n")

    def _fields(
        self, partition: TopicPartition, record: Record, *, has_value: bool = True
    ) -> dict[str, Any]:
        fields = {
            "kind": "record",
            "topic": partition.topic,
            "partition": partition.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
        }
        if has_value:
            fields["key"], fields["value"] = self._values(partition.topic, record)
        else:
            fields["key"] = self._value(record.key)
        fields["headers"] = [[name, self._value(data)] for name, data in record.headers]
        return fields

    def _values(self, topic: str, record: Record) -> tuple[Any, Any]:
        found = self._decoded(topic, record)
        if found is not None:
            return found
        return self._value(record.key), self._value(record.value)

    def _decoded(self, topic: str, record: Record) -> tuple[Any, Any] | None:
        """Return the fields of a record of an internal topic; None for every other record."""
        if self._form != "auto" or not topic.startswith("__"):
            return None
        # Only now: the formats are those of the clients, with all their imports.
        from kafkalog.inspection.internal_records import decode_internal

        return decode_internal(topic, record.key, record.value)

    def _value(self, data: bytes | None) -> Any:
        if data is None:
            return None
        if self._form == "hex":
            return data.hex()
        if self._form == "base64":
            return base64.b64encode(data).decode()
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}
        if self._form == "json":
            with contextlib.suppress(ValueError, RecursionError):
                return json.loads(text, parse_constant=_finite, parse_float=_finite)
        return text

    def _cells(self, partition: TopicPartition, record: Record, key: str, value: str) -> list[str]:
        """Return the cells of a line but those of the headers."""
        time = time_text(record.timestamp_ms, has_seconds=True)
        cells = [f"{record.offset:>8}", time, key, value]
        return [str(partition), *cells] if self._has_partition else cells

    def _line(self, partition: TopicPartition, record: Record) -> str:
        cells = self._cells(partition, record, *self._texts(partition.topic, record))
        cells += [f"{name}={self._text(data)}" for name, data in record.headers]
        line = _joined(cells)
        width = self._width
        if width is None:
            return line
        return _cut(line.expandtabs(_TAB), width - 2 if self._has_mark else width)

    def _texts(self, topic: str, record: Record) -> tuple[str, str]:
        found = self._decoded(topic, record)
        if found is not None:
            key, value = found
            return _compact(key), "null" if value is None else _compact(value)
        return self._text(record.key), self._text(record.value)

    def _text(self, data: bytes | None) -> str:
        if data is None:
            return "null"
        if self._width is not None:
            # A value of 100 MB is not decoded for a line of 80 columns.
            data = data[: 4 * self._width]
        if self._form in ("auto", "text"):
            return data.decode("utf-8", "backslashreplace")
        shown = self._value(data)
        return shown if isinstance(shown, str) else _compact(shown)


def _joined(cells: Iterable[str]) -> str:
    # Printable text has no character to escape, and nearly all text is printable.
    return "\t".join(
        cell if cell.isprintable() else escape(cell).translate(_ESCAPES) for cell in cells
    )


def _finite(text: str) -> float:
    """Return a number of JSON; ValueError for NaN and infinity, which JSON does not have."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"a number of JSON must be finite, got {text}")
    return number


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _cut(line: str, width: int) -> str:
    """Return a line that fits; characters of East Asia take two columns."""
    if line.isascii():
        return line if len(line) <= width else line[: width - 3] + "..."
    from unicodedata import east_asian_width

    left, used = width, 0
    for number, character in enumerate(line):
        left -= 2 if east_asian_width(character) in "WF" else 1
        if left < 3:
            break
        used = number + 1
    return line if used == len(line) else line[:used] + "..."


def parse_bytes(text: str | None) -> bytes | None:
    """Return the bytes of a text, of `hex:...` or of `base64:...`; ConfigError for a wrong one."""
    if text is None:
        return None
    kind, colon, digits = text.partition(":")
    try:
        if colon and kind == "hex":
            return bytes.fromhex(digits)
        if colon and kind == "base64":
            return base64.b64decode(digits, validate=True)
    except ValueError:
        raise ConfigError(f"a key must be text, hex:... or base64:..., got {text[:60]!r}") from None
    return text.encode("utf-8", "surrogateescape")


def report_range(report: Report, found: CorruptRange) -> None:
    """Report a corrupt range that was skipped."""
    offsets = f"offsets {found.first_offset} to {found.next_offset - 1} are missing"
    if found.next_offset <= found.first_offset:
        offsets = "no offset is missing"
    report.add_damage(
        f"{found.path}: {found.size_bytes:,} bytes at position {found.position:,}"
        f" ({found.reason}): {offsets}",
        path=str(found.path),
        position=found.position,
        size_bytes=found.size_bytes,
        first_offset=found.first_offset,
        next_offset=found.next_offset,
        reason=found.reason,
    )
