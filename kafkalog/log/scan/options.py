"""Options of a scan: columns, their types, and the size of batches.

Thread-safety: immutable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypedDict, Unpack, get_args

from kafkalog._core.arrow_export import ArrowField
from kafkalog._core.row_builder import COLUMN_NAMES, RowBuilder, row_fields
from kafkalog.log.isolation import Isolation, check_isolation
from kafkalog.log.reading import OnCorrupt
from kafkalog.log.scan.conditions import ANYTHING, Conditions, Filter, conditions_of

__all__ = [
    "BATCH_BYTES",
    "BATCH_ROWS",
    "DEFAULT_COLUMNS",
    "BinaryType",
    "HeaderKeyType",
    "ScanArguments",
    "ScanOptions",
    "make_options",
]

BinaryType = Literal["binary", "large_binary", "binary_view"]
HeaderKeyType = Literal["utf8", "binary"]

# Columns of a scan that names none; the others are rarely requested.
DEFAULT_COLUMNS: Final = COLUMN_NAMES[:8]

BATCH_ROWS: Final = 65_536
# A batch, and the one before that a consumer still reads, fit a common second-level cache.
BATCH_BYTES: Final = 512 * 1024
BATCH_BYTES_MAX: Final = 2**30


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """
    Options of a scan.

    Attributes:
        columns: names, in the requested order.
        conditions: conditions of the records.
        isolation, on_corrupt: as for `records`.
        binary_type: Arrow type of key and value.
        header_key_type: Arrow type of the keys of headers.
        batch_rows, batch_bytes: largest size of a batch.
    """

    columns: tuple[str, ...] = DEFAULT_COLUMNS
    conditions: Conditions = field(default=ANYTHING)
    isolation: Isolation = "read_uncommitted"
    on_corrupt: OnCorrupt = "raise"
    binary_type: BinaryType = "binary"
    header_key_type: HeaderKeyType = "utf8"
    batch_rows: int = BATCH_ROWS
    batch_bytes: int = BATCH_BYTES

    def fields(self) -> tuple[ArrowField, ...]:
        """Return name and type of each column."""
        is_text = self.header_key_type == "utf8"
        return row_fields(self.columns, binary_type=self.binary_type, text_keys=is_text)

    def projected(self, fields: Iterable[ArrowField]) -> ScanOptions:
        """
        Return the same scan with the requested types of key, value and headers.

        It is unchanged if a consumer asks for types that no scan has: the stream has a schema.
        """
        kinds = [_kinds(each) for each in fields]
        for binary_type in get_args(BinaryType):
            for header_key_type in get_args(HeaderKeyType):
                other = replace(self, binary_type=binary_type, header_key_type=header_key_type)
                if [_kinds(each) for each in other.fields()] == kinds:
                    return other
        return self

    def builder(self) -> RowBuilder:
        """Return a builder of such batches."""
        return RowBuilder(
            self.columns,
            binary_type=self.binary_type,
            text_keys=self.header_key_type == "utf8",
            rows_max=self.batch_rows,
            bytes_max=self.batch_bytes,
        )


def _kinds(field: ArrowField, *, is_column: bool = True) -> tuple[Any, ...]:
    """Return name and type of a column, and the types of its parts."""
    parts = tuple(_kinds(child, is_column=False) for child in field.children)
    return (field.name if is_column else "", field.kind, parts)


class ScanArguments(TypedDict, total=False):
    """Arguments of `Log.scan` that every kind of scan has."""

    columns: Iterable[str] | None
    filters: Iterable[Filter]
    isolation: Isolation
    on_corrupt: OnCorrupt
    binary_type: BinaryType
    header_key_type: HeaderKeyType
    batch_rows: int
    batch_bytes: int


def make_options(**arguments: Unpack[ScanArguments]) -> ScanOptions:
    """Return checked options; ValueError or TypeError for an invalid one."""
    others: dict[str, Any] = {**arguments}
    columns, filters = others.pop("columns", None), others.pop("filters", ())
    options = ScanOptions(
        columns=DEFAULT_COLUMNS if columns is None else _check_columns(columns),
        conditions=conditions_of(filters),
        **others,
    )
    check_isolation(options.isolation)
    _check_choice("on_corrupt", options.on_corrupt, get_args(OnCorrupt))
    _check_choice("binary_type", options.binary_type, get_args(BinaryType))
    _check_choice("header_key_type", options.header_key_type, get_args(HeaderKeyType))
    if options.batch_rows < 1:
        raise ValueError(f"batch_rows must be at least 1, got {options.batch_rows}")
    if not 1 <= options.batch_bytes <= BATCH_BYTES_MAX:
        raise ValueError(
            f"batch_bytes must be in 1 to {BATCH_BYTES_MAX}, got {options.batch_bytes}"
        )
    return options


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _check_columns(columns: Iterable[str]) -> tuple[str, ...]:
    if isinstance(columns, str):
        raise TypeError(f"columns must be several names, got {columns!r}")
    names = tuple(columns)
    for name in names:
        if name not in COLUMN_NAMES:
            raise ValueError(f"column must be one of {', '.join(COLUMN_NAMES)}, got {name!r}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"columns must be at least one name, none twice, got {names}")
    return names
