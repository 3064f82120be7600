"""Columns of the data source: names, types in Spark and Arrow, and selection.

The columns of records are the seven of Spark's own Kafka source, and its headers on request; others
are read only if a schema of the caller names them. Spark does not report which columns a query
uses, so a schema or the option `columns` makes a reader decode less.

Spark accepts only batches of exactly the Arrow types of its schema, so arrays are made to fit the
schema of the reader, and the schema is checked before anything is read.

Thread-safety: pure functions over tables. Nothing here imports pyspark; pyarrow is imported when a
schema is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from kafkalog.spark.errors import ErrorCode, KafkaLogSparkError
from kafkalog.spark.options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "BATCH_COLUMNS",
    "CORRUPT_RECORD",
    "HEADERS",
    "PARTITION_COLUMNS",
    "RECORD_COLUMNS",
    "RECORD_EXTRAS",
    "SEGMENT_COLUMNS",
    "VERIFY_COLUMNS",
    "Column",
    "arrow_type",
    "check_fields",
    "columns_of",
    "ddl_of",
    "ensure_type",
    "known_columns",
    "never_null",
]

HEADERS: Final = "headers"
CORRUPT_RECORD: Final = "_corrupt_record"
_HEADERS_TYPE: Final = "array<struct<key: string, value: binary>>"


@dataclass(frozen=True, slots=True)
class Column:
    """
    A column of a view.

    Attributes:
        name: as in a schema.
        kind: its type, in Spark's notation.
        engine: its source, a column of `Log.scan`; empty without one.
    """

    name: str
    kind: str
    engine: str = ""


def _columns(*columns: tuple[str, ...]) -> dict[str, Column]:
    return {column[0]: Column(*column) for column in columns}


RECORD_COLUMNS: Final = _columns(
    ("key", "binary", "key"),
    ("value", "binary", "value"),
    ("topic", "string", "topic"),
    ("partition", "int", "partition"),
    ("offset", "long", "offset"),
    ("timestamp", "timestamp", "timestamp"),
    ("timestampType", "int", "timestamp_type"),
)

# Read if a schema names them.
RECORD_EXTRAS: Final = _columns(
    (HEADERS, _HEADERS_TYPE, "headers"),
    ("producerId", "long", "producer_id"),
    ("leaderEpoch", "int", "leader_epoch"),
    ("segment", "string"),
    ("keyHash", "binary", "key"),
    (CORRUPT_RECORD, "string"),
)

BATCH_COLUMNS: Final = _columns(
    ("topic", "string"),
    ("partition", "int"),
    ("segment", "string"),
    ("position", "long"),
    ("sizeBytes", "int"),
    ("baseOffset", "long"),
    ("lastOffset", "long"),
    ("recordCount", "int"),
    ("baseTimestamp", "timestamp"),
    ("maxTimestamp", "timestamp"),
    ("timestampType", "int"),
    ("compression", "string"),
    ("magic", "int"),
    ("producerId", "long"),
    ("producerEpoch", "int"),
    ("baseSequence", "int"),
    ("leaderEpoch", "int"),
    ("isTransactional", "boolean"),
    ("isControl", "boolean"),
)

SEGMENT_COLUMNS: Final = _columns(
    ("topic", "string"),
    ("partition", "int"),
    ("segment", "string"),
    ("sizeBytes", "long"),
    ("startOffset", "long"),
    ("endOffset", "long"),
    ("batchCount", "long"),
    ("recordCount", "long"),
    ("controlBatchCount", "long"),
    ("maxTimestamp", "timestamp"),
)

PARTITION_COLUMNS: Final = _columns(
    ("topic", "string"),
    ("partition", "int"),
    ("directory", "string"),
    ("logStartOffset", "long"),
    ("logEndOffset", "long"),
    ("visibleEndOffset", "long"),
    ("segmentCount", "int"),
    ("sizeBytes", "long"),
)

VERIFY_COLUMNS: Final = _columns(
    ("topic", "string"),
    ("partition", "int"),
    ("segment", "string"),
    ("bytes", "long"),
    ("batches", "long"),
    ("records", "long"),
    ("bad", "long"),
    ("badBytes", "long"),
    ("firstBad", "long"),
    ("tailBytes", "long"),
    ("tail", "string"),
    ("indexOk", "boolean"),
)


_VIEWS: Final[dict[str, Mapping[str, Column]]] = {
    "batches": BATCH_COLUMNS,
    "segments": SEGMENT_COLUMNS,
    "partitions": PARTITION_COLUMNS,
    "verify": VERIFY_COLUMNS,
}


def ddl_of(columns: Iterable[Column]) -> str:
    """Return a schema in Spark's notation."""
    return ", ".join(f"`{column.name}` {column.kind}" for column in columns)


def arrow_type(kind: str) -> pa.DataType:
    """Return the Arrow type that Spark makes of one of its types."""
    import pyarrow as pa

    simple = {
        "binary": pa.binary(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "string": pa.string(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    if kind == _HEADERS_TYPE:
        return pa.list_(
            pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
        )
    return simple[kind]


def known_columns(options: ReadOptions) -> Mapping[str, Column]:
    """
    Return the columns that a query may name, by their names.

    Raises:
        KafkaLogSparkError: OPTION_CONFLICT if the corrupt column has the name of another one.
    """
    if options.view != "records":
        return _VIEWS[options.view]
    columns = RECORD_COLUMNS | RECORD_EXTRAS
    corrupt = options.corrupt_column
    if corrupt != CORRUPT_RECORD:
        if corrupt in columns:
            raise KafkaLogSparkError(
                ErrorCode.OPTION_CONFLICT,
                f"columnNameOfCorruptRecord is {corrupt!r}, which is another column's name",
                options=["columnNameOfCorruptRecord"],
            )
        del columns[CORRUPT_RECORD]
        columns[corrupt] = Column(corrupt, "string")
    return columns


def columns_of(options: ReadOptions) -> tuple[Column, ...]:
    """
    Return the columns of a query without a schema.

    Raises:
        KafkaLogSparkError: COLUMN_UNKNOWN, OPTION_INVALID, OPTION_CONFLICT.
    """
    columns = known_columns(options)
    if options.columns is not None:
        return choose(columns, options.columns)
    if options.view != "records":
        return tuple(columns.values())
    headers = (RECORD_EXTRAS[HEADERS],) if options.include_headers else ()
    return (*RECORD_COLUMNS.values(), *headers)


def never_null(options: ReadOptions) -> tuple[str, ...]:
    """Return the columns that a schema may declare never to be null."""
    if options.view != "records":
        return ()
    times = () if options.mode == "PERMISSIVE" else ("timestamp", "timestampType")
    return ("topic", "partition", "offset", *times)


def choose(
    columns: Mapping[str, Column], names: Sequence[str], option: str = "columns"
) -> tuple[Column, ...]:
    """
    Return columns by their names.

    Raises:
        KafkaLogSparkError: COLUMN_UNKNOWN, OPTION_INVALID for a name that occurs twice.
    """
    for name in names:
        if name not in columns:
            raise unknown_column(columns, name)
    if not names or len(set(names)) < len(names):
        raise KafkaLogSparkError(
            ErrorCode.OPTION_INVALID,
            f"{option} must have one or more distinct columns, got {', '.join(names)!r}",
            option=option,
        )
    return tuple(columns[name] for name in names)


def unknown_column(columns: Iterable[str], name: str) -> KafkaLogSparkError:
    """Return the error for an unknown column."""
    names = list(columns)
    near = get_close_matches(name.lower(), [each.lower() for each in names], 1, 0.5)
    hint = next((f"; did you mean {each!r}?" for each in names if each.lower() in near), "")
    return KafkaLogSparkError(
        ErrorCode.COLUMN_UNKNOWN,
        f"no column {name!r}{hint or '; there are ' + ', '.join(names)}",
        column=name,
        columns=names,
    )


def check_fields(
    view_columns: Mapping[str, Column], fields: pa.Schema, never_null: Iterable[str] = ()
) -> tuple[Column, ...]:
    """
    Return the columns of a caller's schema, in its order.

    Args:
        view_columns: columns of the view.
        fields: the schema, in Arrow's types.
        never_null: columns that may be declared so.

    Raises:
        KafkaLogSparkError: COLUMN_UNKNOWN; TYPE_INVALID if a type differs, or a column that may
            have nulls is declared to have none.
    """
    columns = choose(view_columns, fields.names, "the schema")
    for column, field in zip(columns, fields, strict=True):
        column_type = arrow_type(column.kind)
        if not _is_same(column_type, field.type):
            raise KafkaLogSparkError(
                ErrorCode.TYPE_INVALID,
                f"column {column.name!r} is {column.kind}, not {field.type}: cast it in the query",
                column=column.name,
                expected=column.kind,
                actual=str(field.type),
            )
        if not field.nullable and column.name not in never_null:
            raise KafkaLogSparkError(
                ErrorCode.TYPE_INVALID,
                f"column {column.name!r} may be null, and the schema declares it non-nullable",
                column=column.name,
            )
    return columns


def ensure_type(name: str, kind: str, allowed: Sequence[str]) -> None:
    """
    Check the type of a column of rows to write.

    Args:
        name: of the column.
        kind: its type, as Spark's `simpleString` has it.
        allowed: the types it may have.

    Raises:
        KafkaLogSparkError: TYPE_INVALID.
    """
    if kind not in allowed:
        raise KafkaLogSparkError(
            ErrorCode.TYPE_INVALID,
            f"column {name!r} is of type {kind}, and must be {' or '.join(allowed)}",
            column=name,
            type=kind,
        )


def _is_same(column_type: pa.DataType, field_type: pa.DataType) -> bool:
    """Compare types except for the nullability of nested types."""
    import pyarrow as pa

    if pa.types.is_list(column_type) and pa.types.is_list(field_type):
        return _is_same(column_type.value_type, field_type.value_type)
    if pa.types.is_struct(column_type) and pa.types.is_struct(field_type):
        ours, theirs = list(column_type), list(field_type)
        return [field.name for field in ours] == [field.name for field in theirs] and all(
            _is_same(one.type, other.type) for one, other in zip(ours, theirs, strict=True)
        )
    return bool(column_type == field_type)
