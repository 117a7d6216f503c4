"""The result of decoding RECORD lines: Arrow columns, changed values, and rejected lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from typing import Any, NamedTuple

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
    """A change to a value, as listed in `_airbyte_meta.changes`: the field, the change, and its reason.

    `field` is the path of source keys, joined by `.`. `original` is the JSON text of the received value, or None if the
    source reported the change. It is never logged, and is ignored when changes are compared. `is_equivalent` states
    whether the stored value has the same meaning.
    """

    field: str | None
    change: str | None
    reason: str | None
    original: bytes | None = dataclass_field(default=None, compare=False, repr=False)
    is_equivalent: bool = dataclass_field(default=False, compare=False)

    @property
    def loses_value(self) -> bool:
        """Whether the change needs a reject. If a blank string became null, it needs none."""
        had_no_value = self.change == NULLED and self.original is not None and _EMPTY.fullmatch(self.original)
        return not (had_no_value or self.is_equivalent)


_CHANGE_TYPE: Any = arrow_type(CHANGE)
CHANGES_TYPE = arrow_type(List(CHANGE))


def change_lists(rows: int, by_row: Iterable[tuple[int, Sequence[ValueChange]]]) -> pa.Array[Any] | None:
    """Return an array of CHANGES_TYPE with a list of changes for each of `rows` rows, or None if there are no changes.

    `by_row` contains the row numbers and changes of the rows that have changes, in ascending order.
    """
    entries: list[ValueChange] = []
    offsets = np.zeros(rows + 1, np.int32)
    for row, changes in by_row:
        if changes:
            entries += changes
            offsets[row + 1] = len(changes)
    if not entries:
        return None
    np.cumsum(offsets, out=offsets)
    members = [[getattr(change, name) for change in entries] for name in ("field", "change", "reason")]
    arrays = [pa.array(values, pa.string()) for values in members]
    structs: Any = pa.StructArray.from_arrays(arrays, fields=list(_CHANGE_TYPE))
    return changes_array(pa.array(offsets), structs)


def changes_array(offsets: Any, entries: Any) -> pa.Array[Any]:
    """Return an array of CHANGES_TYPE, built from the offsets of its lists and from all of its entries."""
    return pa.ListArray.from_arrays(offsets, entries, type=CHANGES_TYPE)


# --- The result of a block ------------------------------------------------------------------------------------------


class RejectedLine(NamedTuple):
    """A line whose record was rejected, so that it does not become a row.

    `reason` is a code. `message` is for the user, and never quotes the line.
    """

    line: bytes
    reason: str
    message: str


LineNumbers = np.ndarray[Any, np.dtype[np.int64]]
"""The line numbers of rows, in ascending order."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of a block. An index returns a line as received, without its newline.

    `starts` and `ends` are the positions of each line's first byte and of its newline in the block. `numbers` are the
    numbers of the lines among all decoded lines, starting at 0.
    """

    block: bytes | memoryview
    starts: LineNumbers
    ends: LineNumbers
    numbers: LineNumbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: int) -> bytes:
        return bytes(self.block[self.starts[index] : self.ends[index]])

    def select(self, indexes: slice | LineNumbers) -> Lines:
        """Return the lines at these indexes."""
        return Lines(self.block, self.starts[indexes], self.ends[indexes], self.numbers[indexes])


NO_LINES = Lines(b"", np.arange(0), np.arange(0), np.arange(0))

Mask = np.ndarray[Any, np.dtype[np.bool_]]
"""One boolean per row."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded records. All arrays have one entry per row.

    - `extracted_at`: the times of extraction, as timestamp[us, UTC].
    - `columns`: the values of each column, in the widest types (64-bit integers, doubles). Files may use narrower
      types.
    - `changes`: the changes by the source and the connector, as CHANGES_TYPE, or None if there are none.
    - `changed`: the changes by the connector, by row. Only rows with changes are included, in order.
    - `rejected`: the lines that did not become rows.
    - `lines`: the line of each row.
    """

    extracted_at: pa.Array[Any]
    columns: Sequence[pa.Array[Any]]
    changes: pa.Array[Any] | None
    changed: Mapping[int, Sequence[ValueChange]] = dataclass_field(default_factory=dict)
    rejected: Sequence[RejectedLine] = ()
    lines: Lines = NO_LINES

    @property
    def rows(self) -> int:
        """The number of rows, without rejected lines."""
        return len(self.extracted_at)

    def filtered(self, kept: Mask) -> Decoded:
        """Return a copy with only the rows for which `kept` is true. All rejected lines are kept."""
        mask = pa.array(kept)
        numbers = np.cumsum(kept) - 1
        changes: Any = None if self.changes is None else self.changes.filter(mask)
        return replace(
            self,
            extracted_at=self.extracted_at.filter(mask),
            columns=[column.filter(mask) for column in self.columns],
            changes=changes if changes is not None and len(changes.flatten()) else None,
            changed={int(numbers[row]): changes for row, changes in self.changed.items() if kept[row]},
            lines=self.lines.select(np.flatnonzero(kept)),
        )
