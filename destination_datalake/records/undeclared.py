"""Fields of records that their stream's schema does not declare, found by name in the first records of a unit.

They are not written, whatever `additionalProperties` says. Only objects that become structs or columns are searched:
what is kept as JSON text is kept whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from destination_datalake.records.changes import path_step
from destination_datalake.records.envelope import RawRecord, RecordLine
from destination_datalake.schema.columns import METADATA_COLUMNS, RecordFields
from destination_datalake.schema.types import ColumnType, Field, List, Struct

SAMPLE_LINES = 100
SAMPLE_BYTES = 1024 * 1024
"""The lines of a unit's first block that are sampled: as many as SAMPLE_LINES, SAMPLE_BYTES at most."""

SAMPLE_ELEMENTS = 10
"""The elements of a list that are sampled."""

MANY_NAMES = 20
"""An object with more undeclared names is taken for a map: its keys are data, and stand as `*`."""

NAMES_LISTED = 20
_METADATA = {column.name for column in METADATA_COLUMNS}
_LONGEST_NAME = 100

Found = dict[str, set[str]]
"""The undeclared names by the path of the object that has them."""


def undeclared_fields(block: bytes | memoryview, columns: Sequence[Field]) -> tuple[str, ...]:
    """Return the paths of fields in the block's first records that are neither a column nor a property, sorted.

    Keys are joined by `.`, a list is `[]`. Lines that msgspec refuses are skipped, and so are the names of metadata
    columns: other destinations write them.
    """
    found: Found = {}
    shape = Struct(RecordFields.of(columns).fields)
    for line in _first_lines(block):
        record = _decoded(_LINE, line)
        if record is not None:
            _collect(record.record.data, shape, "", found)
    return tuple(sorted(_paths(found)))


def undeclared_warning(stream: object, paths: Iterable[str]) -> str:
    """Return the warning for a stream's undeclared fields. It lists NAMES_LISTED of them."""
    names = sorted(set(paths))
    more = len(names) - NAMES_LISTED
    listed = ", ".join(names[:NAMES_LISTED]) + (f" and {more} more" if more > 0 else "")
    return (
        f"Stream {stream}: records have fields that the schema does not declare, which are not written: {listed}. "
        "Refresh the source's schema, or declare them there, and they become columns. This warning is not repeated."
    )


_LINE = msgspec.json.Decoder(RecordLine[RawRecord[Raw]])
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])


def _first_lines(block: bytes | memoryview) -> Iterator[bytes]:
    return iter(bytes(block[:SAMPLE_BYTES]).split(b"\n")[:SAMPLE_LINES])


def _decoded(decoder: Any, text: bytes | Raw) -> Any:
    """Return the value, or None if msgspec refuses it."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _collect(text: Raw, type_: ColumnType, path: str, found: Found) -> None:
    """Add the undeclared names in a value of this type."""
    match type_:
        case Struct(fields):
            declared: Mapping[str, ColumnType] = {field.source: field.type for field in fields}
            for key, value in (_decoded(_OBJECT, text) or {}).items():
                if key not in declared and (path or key not in _METADATA):
                    _add(key, found.setdefault(path, set()))
                elif isinstance(inner := declared.get(key), Struct | List):
                    _collect(value, inner, _joined(path, key), found)
        case List(element) if isinstance(element, Struct | List):
            for value in (_decoded(_ARRAY, text) or [])[:SAMPLE_ELEMENTS]:
                _collect(value, element, f"{path}[]", found)


def _add(key: str, names: set[str]) -> None:
    if len(names) <= MANY_NAMES:
        names.add(key)


def _joined(path: str, key: str) -> str:
    name = path_step(key)
    name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    return f"{path}.{name}" if path else name


def _paths(found: Found) -> Iterator[str]:
    for path, names in found.items():
        yield from (_joined(path, key) for key in (names if len(names) <= MANY_NAMES else "*"))
