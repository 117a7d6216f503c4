"""The result of decoding RECORD lines: Arrow columns, changed values, and rejected lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.columns import CHANGE
from destination_datalake.schema.types import List

NULLED = "NULLED"
TRUNCATED = "TRUNCATED"
SERIALIZATION_ERROR = "DESTINATION_SERIALIZATION_ERROR"
FIELD_SIZE_LIMITATION = "DESTINATION_FIELD_SIZE_LIMITATION"


_EMPTY = re.compile(rb'"(?: |\\[trn])*"')


# --- Changed values -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ValueChange:
    """An entry of `_airbyte_meta.changes`: the field's path (source keys joined by `.`), the change, and its reason.

    `original` is the JSON text of the received value, or None for a change that the source reported. The original is
    ignored when changes are compared, and never logged.
    """

    field: str | None
    change: str | None
    reason: str | None
    original: bytes | None = dataclass_field(default=None, compare=False, repr=False)

    @property
    def had_no_value(self) -> bool:
        """Whether the received value was a blank text, which became null.

        Such a change needs no reject, as no value is lost.
        """
        return self.change == NULLED and self.original is not None and _EMPTY.fullmatch(self.original) is not None


_CHANGE_TYPE: Any = arrow_type(CHANGE)
CHANGES_TYPE = arrow_type(List(CHANGE))


def change_lists(rows: int, by_row: Iterable[tuple[int, Sequence[ValueChange]]]) -> pa.Array[Any]:
    """Return an array of CHANGES_TYPE with the changes of `rows` rows.

    `by_row` contains the number and the changes of each row that has changes, in ascending order.
    """
    entries: list[ValueChange] = []
    offsets = np.zeros(rows + 1, np.int32)
    for row, changes in by_row:
        if changes:
            entries += changes
            offsets[row + 1] = len(changes)
    np.cumsum(offsets, out=offsets)
    members = [[getattr(change, name) for change in entries] for name in ("field", "change", "reason")]
    arrays = [pa.array(values, pa.string()) for values in members]
    structs: Any = pa.StructArray.from_arrays(arrays, fields=list(_CHANGE_TYPE))
    return changes_array(pa.array(offsets), structs)


def changes_array(offsets: Any, entries: Any) -> pa.Array[Any]:
    """Return an array of CHANGES_TYPE that is built from the offsets of its lists and from all entries."""
    return pa.ListArray.from_arrays(offsets, entries, type=CHANGES_TYPE)


# --- The result of a block ------------------------------------------------------------------------------------------


class ChangedRow(NamedTuple):
    """A row with changed values: the row's number, the line of its record, and at least one change."""

    row: int
    line: bytes
    changes: Sequence[ValueChange]


class RejectedLine(NamedTuple):
    """A line that does not become a row because its record is rejected.

    `reason` is a code. `message` is a text for users, and never quotes the line.
    """

    line: bytes
    reason: str
    message: str


class RowLines(Protocol):
    """Provides the received line of each row, by row number."""

    def __getitem__(self, row: int, /) -> bytes: ...


LineNumbers = np.ndarray[Any, np.dtype[np.int64]]
"""The line number of each row, in ascending order."""

Mask = np.ndarray[Any, np.dtype[np.bool_]]
"""A truth value for each row."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of decoded records, as columns. Every array has one entry per row.

    `extracted_at` has the type timestamp[us, UTC]. `columns` have the widest types (64-bit integers, doubles); files
    may store narrower types. `changes` has the type CHANGES_TYPE and contains the changes of the source and the
    connector, or is None if there are none. `changed` are the rows that the connector changed, in order. `rejected` are
    the lines that did not become rows. `lines` are the lines of the rows, and `line_numbers` are their numbers among
    all decoded lines, beginning with 0.
    """

    extracted_at: pa.Array[Any]
    columns: Sequence[pa.Array[Any]]
    changes: pa.Array[Any] | None
    changed: Sequence[ChangedRow] = ()
    rejected: Sequence[RejectedLine] = ()
    lines: RowLines = ()
    line_numbers: LineNumbers = dataclass_field(default_factory=lambda: np.arange(0))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.extracted_at)

    def filtered(self, kept: Mask) -> Decoded:
        """Return only the rows for which the mask is true, and all rejected lines."""
        mask = pa.array(kept)
        rows = np.flatnonzero(kept)
        numbers = np.cumsum(kept) - 1
        changes: Any = None if self.changes is None else self.changes.filter(mask)
        return replace(
            self,
            extracted_at=self.extracted_at.filter(mask),
            columns=[column.filter(mask) for column in self.columns],
            changes=changes if changes is not None and len(changes.flatten()) else None,
            changed=[changed._replace(row=int(numbers[changed.row])) for changed in self.changed if kept[changed.row]],
            lines=_FilteredLines(self.lines, rows),
            line_numbers=self.line_numbers[rows],
        )


@dataclass(frozen=True, slots=True)
class _FilteredLines:
    """The lines of a subset of the rows."""

    lines: RowLines
    rows: LineNumbers

    def __getitem__(self, row: int) -> bytes:
        return self.lines[int(self.rows[row])]
