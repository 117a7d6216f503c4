"""Lines of records by the values that the connector makes of them: whatever a source sends, the column's rules decide.

A line is found if one of the columns would get one of the chosen values from it. Of a line that cannot become a row the
values are read as well, and of one that cannot be taken apart every string and number counts: it is rather found.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from destination_datalake.protocol.json_text import NULL, members_or_none, string_or_none
from destination_datalake.records.decoder import BlockDecoder, blocks
from destination_datalake.records.values.registry import rules_for
from destination_datalake.records.values.rules import Floats
from destination_datalake.schema.types import Field

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*')
"""What a value may be in a text that is no JSON."""


class Chosen(Protocol):
    """Values of one column."""

    def contains(self, values: Any, /) -> NDArray[np.bool_]:
        """Tell which of the values are among them: an Arrow array without nulls, of the column's widest type."""


def chosen_of(values: Any, chosen: Chosen) -> NDArray[np.bool_]:
    """Return a mask of an Arrow array, true for the chosen values; null is never one."""
    if not values.null_count:
        return chosen.contains(values)
    mask = values.is_valid().to_numpy(zero_copy_only=False)
    mask[mask] = chosen.contains(values.drop_null())
    return mask  # type: ignore[no-any-return]


class RecordSearch:
    """Finds RECORD lines. `columns` are where the value may be: Field.path leads to it in the record's data."""

    def __init__(self, columns: Sequence[Field], chosen: Chosen) -> None:
        # One decoder each: columns of one source cannot be read together.
        self._searches = [_ColumnSearch(column, chosen) for column in columns]
        self._columns = columns

    def found(self, lines: bytes | bytearray) -> NDArray[np.bool_]:
        """Return a mask of whole lines, each ended by a newline, and none of them blank."""
        masks = [np.zeros(0, np.bool_)]
        for block in blocks(lines, self._columns):
            text = bytes(block)
            masks.append(np.logical_or.reduce([search.found(text) for search in self._searches]))
        return np.concatenate(masks)


class _ColumnSearch:
    """Finds lines by one column."""

    def __init__(self, column: Field, chosen: Chosen) -> None:
        self._column = column
        self._chosen = chosen
        self._rules = rules_for(column.type, Floats.ANY)
        self._coerce = self._rules.coercer(column.source)
        self._decoder = BlockDecoder((replace(column, name="value"),))
        self._decoded_lines = 0

    def found(self, block: bytes) -> NDArray[np.bool_]:
        count = block.count(b"\n")
        found, seen = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        first, decoded_lines = self._decoded_lines, 0
        for decoded in self._decoder.decode(block):
            decoded_lines += decoded.rows + len(decoded.rejected)
            numbers = decoded.line_numbers - first
            numbers, is_line = numbers[numbers < count], numbers < count
            seen[numbers] = True
            found[numbers] = chosen_of(decoded.columns[0], self._chosen)[is_line]
        self._decoded_lines += decoded_lines
        if decoded_lines != count:
            seen[:] = False  # A line holds two records: numbers are not those of lines.
        if not seen.all():
            lines = block.split(b"\n")
            for number in np.flatnonzero(~seen).tolist():
                found[number] |= self._is_chosen([*self._values(lines[number])])
        return found

    def _is_chosen(self, values: Sequence[Any]) -> bool:
        array = pa.array(values, self._rules.arrow_type)
        return bool(chosen_of(array, self._chosen).any())

    def _values(self, line: bytes) -> Iterator[Any]:
        """Yield what the column may get of a line that becomes no row."""
        data = _data_of(line.removeprefix(BOM_UTF8))
        if data is None:
            yield from map(self._value, _tokens(line))
            return
        *parents, source = self._column.path
        for key in parents:
            data = members_or_none(data.get(key, NULL))
            if data is None:
                return
        yield self._value(data.get(source, NULL))

    def _value(self, text: bytes) -> Any:
        return self._coerce(text, [])


def _data_of(line: bytes) -> dict[str, bytes] | None:
    found = members_or_none(line)
    for key in ("record", "data"):
        found = None if found is None else members_or_none(found.get(key, NULL))
    return found


def _tokens(line: bytes) -> Iterator[bytes]:
    return (token for token in _TOKEN.findall(line) if token[:1] != b'"' or string_or_none(token) is not None)
