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
    """A change to a value, as listed in the column `_airbyte_meta.changes`: the field, the change, and its reason.

    `field` is the path of keys that leads to the value in the record, joined by `.`. `original` is the JSON text of the
    received value, or None if the source reported the change. The connector never logs `original`. `is_equivalent`
    states whether the stored value has the same meaning as the original. Comparisons of changes ignore `original` and
    `is_equivalent`.
    """

    field: str | None
    change: str | None
    reason: str | None
    original: bytes | None = dataclass_field(default=None, compare=False, repr=False)
    is_equivalent: bool = dataclass_field(default=False, compare=False)

    @property
    def loses_value(self) -> bool:
        """Whether the change loses information, so that the connector must keep the original value as a reject.

        False if the stored value has the same meaning, or if null replaced a string of blanks.
        """
        had_no_value = self.change == NULLED and self.original is not None and _EMPTY.fullmatch(self.original)
        return not (had_no_value or self.is_equivalent)


_CHANGE_TYPE: Any = arrow_type(CHANGE)
CHANGES_TYPE = arrow_type(List(CHANGE))


def change_lists(rows: int, by_row: Iterable[tuple[int, Sequence[ValueChange]]]) -> pa.Array[Any] | None:
    """Return an array of CHANGES_TYPE with a list of changes for each of `rows` rows, or None if there are no changes.

    `by_row` contains row numbers with the changes of the row, in ascending order of the numbers. Rows that are not in
    `by_row` have no changes.
    """
    entries: list[ValueChange] = []
    # Entry i + 1 is first the number of changes of row i. The cumulative sum turns these numbers into offsets.
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
    """Return an array of CHANGES_TYPE, given the offsets of its lists and the entries of all lists."""
    return pa.ListArray.from_arrays(offsets, entries, type=CHANGES_TYPE)


# --- The result of a block ------------------------------------------------------------------------------------------


class RejectedLine(NamedTuple):
    """A line that does not become a row, because the connector rejects its record.

    `reason` is a code, such as `DESTINATION_RECORD_UNREADABLE`. `message` is for the user, and never quotes the line.
    """

    line: bytes
    reason: str
    message: str


LineNumbers = np.ndarray[Any, np.dtype[np.int64]]
"""Line numbers, or positions in a block, in ascending order."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Some of the lines of a block, where a block is a piece of text with whole lines.

    `lines[index]` returns a line as received, without its newline.

    `starts` contains the position of each line's first byte in the block, and `ends` contains the position of its
    newline. `numbers` contains the number of each line among all lines that the decoder has read, starting at 0.
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
        """Return a copy with only the lines at these indexes."""
        return Lines(self.block, self.starts[indexes], self.ends[indexes], self.numbers[indexes])


NO_LINES = Lines(b"", np.arange(0), np.arange(0), np.arange(0))

Mask = np.ndarray[Any, np.dtype[np.bool_]]
"""One boolean per row."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded records. Each array has one entry per row.

    - `extracted_at`: the times at which the source extracted the records, as timestamp[us, UTC].
    - `columns`: the values of each column, in the widest types (64-bit integers, doubles). Data files may use narrower
      types.
    - `changes`: the changes that the source and the connector made to values, as CHANGES_TYPE. None if there are none.
    - `changed`: maps the number of each row with changes by the connector to these changes, in order.
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
        """Return a copy with only the rows for which `kept` is True, and with all rejected lines."""
        mask = pa.array(kept)
        # The new number of each kept row.
        numbers = np.cumsum(kept) - 1
        changes: Any = None if self.changes is None else self.changes.filter(mask)
        return replace(
            self,
            extracted_at=self.extracted_at.filter(mask),
            columns=[column.filter(mask) for column in self.columns],
            # The kept rows may have empty lists only, which count as no changes.
            changes=changes if changes is not None and len(changes.flatten()) else None,
            changed={int(numbers[row]): changes for row, changes in self.changed.items() if kept[row]},
            lines=self.lines.select(np.flatnonzero(kept)),
        )
