"""Find RECORD lines by the value that a column would get from the line.

A line matches if one of the searched columns would get one of the wanted values from the line. The search includes
lines that a sync would reject. If a line is not JSON, the search compares all strings and numbers in the line, because
a false match is better than a missed line.
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

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?')
"""Matches a string or number in a line that is not JSON."""


class ValueSet(Protocol):
    """A set of the values for which a search looks in a column."""

    def contains(self, values: Any, /) -> NDArray[np.bool_]:
        """Return a boolean for each of `values`: whether the value is in the set.

        `values` is an Arrow array without nulls. Its type is the widest type of the column (64-bit integers, doubles).
        """


def matches_of(values: Any, wanted: ValueSet) -> NDArray[np.bool_]:
    """Return a boolean for each of `values`: whether the value is in the set `wanted`. Return False for null."""
    if not values.null_count:
        return wanted.contains(values)
    mask = values.is_valid().to_numpy(zero_copy_only=False)
    # The right side is computed first, with one entry for each True in the mask.
    mask[mask] = wanted.contains(values.drop_null())
    return mask  # type: ignore[no-any-return]


class RecordSearch:
    """A search for RECORD lines with a wanted value in one of the columns.

    The search finds the value of a column at the column's `path` in the record's data.
    """

    def __init__(self, columns: Sequence[Field], wanted: ValueSet) -> None:
        # Use one decoder per column, because a decoder cannot read two columns with the same source.
        self._searches = [_ColumnSearch(column, wanted) for column in columns]
        self._columns = columns

    def match_lines(self, lines: bytes | bytearray) -> NDArray[np.bool_]:
        """Return a boolean for each line: whether the line matches.

        `lines` contains whole lines, each ending with a newline. No line may be empty.
        """
        masks = [np.zeros(0, np.bool_)]
        for block in blocks(lines, self._columns):
            text = bytes(block)
            masks.append(np.logical_or.reduce([search.match_lines(text) for search in self._searches]))
        return np.concatenate(masks)


class _ColumnSearch:
    """A search for RECORD lines with a wanted value in one column."""

    def __init__(self, column: Field, wanted: ValueSet) -> None:
        self._column = column
        self._wanted = wanted
        self._rules = rules_for(column.type, Floats.ANY)
        self._coerce = self._rules.coercer(column.source)
        self._decoder = BlockDecoder((replace(column, name="value"),))
        self._lines = 0

    def match_lines(self, block: bytes) -> NDArray[np.bool_]:
        count = block.count(b"\n")
        matches, is_row = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        # The decoder counts lines over all blocks, so subtract those of earlier blocks.
        for decoded in self._decoder.decode(block):
            numbers = decoded.lines.numbers - self._lines
            is_row[numbers] = True
            matches[numbers] = matches_of(decoded.columns[0], self._wanted)
        self._lines += count
        # Lines that did not become rows are rejected or irregular. They may still contain the value.
        if not is_row.all():
            lines = block.split(b"\n")
            for number in np.flatnonzero(~is_row).tolist():
                matches[number] = self._has_wanted([*self._values(lines[number])])
        return matches

    def _has_wanted(self, values: Sequence[Any]) -> bool:
        array = pa.array(values, self._rules.arrow_type)
        return bool(matches_of(array, self._wanted).any())

    def _values(self, line: bytes) -> Iterator[Any]:
        """Yield the values that the column could get from a line that the decoder has rejected."""
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
    members = members_or_none(line)
    for key in ("record", "data"):
        members = None if members is None else members_or_none(members.get(key, NULL))
    return members


def _tokens(line: bytes) -> Iterator[bytes]:
    return (token for token in _TOKEN.findall(line) if token[:1] != b'"' or string_or_none(token) is not None)
