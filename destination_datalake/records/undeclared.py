"""Fields that records have and their stream's schema has not: noticed in the first records of a unit, by name only.

They are in no column, whatever `additionalProperties` says. Only objects whose properties become a struct's are looked
into: what is kept as JSON text is kept whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from destination_datalake.records.changes import path_step
from destination_datalake.records.envelope import RawRecord, RecordLine
from destination_datalake.schema.columns import METADATA_COLUMNS
from destination_datalake.schema.types import ColumnType, Field, List, Struct

SAMPLE_LINES = 100
SAMPLE_BYTES = 1024 * 1024
"""Of a unit's first block so many lines are looked at, or as few as have so many bytes."""

SAMPLE_ELEMENTS = 10
"""So many elements of a list are looked at."""

MANY_NAMES = 20
"""An object with more undeclared names is taken for a map: its keys are data, and told as `*`."""

NAMES_TOLD = 20
_METADATA = {column.name for column in METADATA_COLUMNS}
_LONGEST_NAME = 100

Found = dict[str, set[str]]
"""The undeclared names by the place of the object that has them."""


def undeclared_fields(block: bytes | memoryview, columns: Sequence[Field]) -> tuple[str, ...]:
    """The places of fields in the block's first records that no column and no property is for, sorted.

    Keys are joined by `.`, a list is `[]`. Lines that are not JSON to everyone are not looked at, and names that are
    metadata columns' are not told: other destinations write them.
    """
    found: Found = {}
    shape = Struct(tuple(columns))
    for line in _first_lines(block):
        record = _decoded(_LINE, line)
        if record is not None:
            _look(record.record.data, shape, "", found)
    return tuple(sorted(_places(found)))


def undeclared_warning(stream: object, places: Iterable[str]) -> str:
    """What people are told of a stream's undeclared fields: up to NAMES_TOLD of them by name."""
    those = sorted(set(places))
    more = len(those) - NAMES_TOLD
    names = ", ".join(those[:NAMES_TOLD]) + (f" and {more} more" if more > 0 else "")
    return (
        f"Stream {stream}: records have fields that the schema does not declare, which are not written: {names}. "
        "Refresh the source's schema, or have it declare them, and they become columns. This is said once."
    )


_LINE = msgspec.json.Decoder(RecordLine[RawRecord[Raw]])
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])


def _first_lines(block: bytes | memoryview) -> Iterator[bytes]:
    return iter(bytes(block[:SAMPLE_BYTES]).split(b"\n")[:SAMPLE_LINES])


def _decoded(decoder: Any, text: bytes | Raw) -> Any:
    """The value, or None if it is of another kind, or no JSON to msgspec."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _look(text: Raw, type_: ColumnType, place: str, found: Found) -> None:
    """Note the undeclared names in a value of this type."""
    match type_:
        case Struct(fields):
            declared: Mapping[str, ColumnType] = {field.source: field.type for field in fields}
            for key, value in (_decoded(_OBJECT, text) or {}).items():
                if key not in declared and (place or key not in _METADATA):
                    _note(key, found.setdefault(place, set()))
                elif isinstance(inner := declared.get(key), Struct | List):
                    _look(value, inner, _joined(place, key), found)
        case List(element) if isinstance(element, Struct | List):
            for value in (_decoded(_ARRAY, text) or [])[:SAMPLE_ELEMENTS]:
                _look(value, element, f"{place}[]", found)


def _note(key: str, names: set[str]) -> None:
    if len(names) <= MANY_NAMES:
        names.add(key)


def _joined(place: str, key: str) -> str:
    name = path_step(key)
    name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    return f"{place}.{name}" if place else name


def _places(found: Found) -> Iterator[str]:
    for place, names in found.items():
        yield from (_joined(place, key) for key in (names if len(names) <= MANY_NAMES else "*"))
