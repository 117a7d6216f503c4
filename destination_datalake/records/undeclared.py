"""Fields of records that their stream's schema does not declare, found by name in the first records of a unit.

They are not written, whatever `additionalProperties` says. Only objects that become structs or columns are searched:
JSON text is kept whole.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import Raw

from destination_datalake.errors import quoted
from destination_datalake.records.record import RawRecord, RecordLine
from destination_datalake.records.values.rules import path_step
from destination_datalake.schema.columns import METADATA_COLUMNS, RecordFields, has_whole_record
from destination_datalake.schema.types import ColumnType, Field, List, Struct

SAMPLE_LINES = 100
SAMPLE_BYTES = 1024 * 1024
"""The lines of a unit's first block that are sampled: as many as SAMPLE_LINES, SAMPLE_BYTES at most."""

SAMPLE_ELEMENTS = 10
"""The elements of a list that are sampled."""

MANY_NAMES = 20
"""An object with more undeclared names is taken for a map: its keys are data, and stand as `*`."""

MANY_OBJECTS = 4
"""So is an object inside a record, once this many were seen at its path and no name was in more than half of them."""

NAMES_LISTED = 20
_METADATA = {column.name for column in METADATA_COLUMNS}
_LONGEST_NAME = 100

# E-mail addresses, numbers, dates, and ids of hexadecimal digits.
_DATA = re.compile(r".*@.*|[-+\d\s.,:/TZ()]*\d[-+\d\s.,:/TZ()]*|(?=.*\d)[0-9a-fA-F-]{16,}", re.DOTALL)


@dataclass(slots=True)
class _Objects:
    """The objects at a path: how many were sampled, and how many of them have which undeclared name."""

    sampled: int = 0
    names: Counter[str] = field(default_factory=Counter)

    def add(self, name: str) -> None:
        """Count a name."""
        if len(self.names) <= MANY_NAMES:
            self.names[name] += 1

    def are_maps(self, path: str) -> bool:
        """Whether their keys are data."""
        if len(self.names) > MANY_NAMES:
            return True
        return bool(path) and self.sampled >= MANY_OBJECTS and max(self.names.values()) * 2 <= self.sampled


Found = dict[str, _Objects]
"""What was found, by the path of the objects."""


def undeclared_fields(block: bytes | memoryview, columns: Sequence[Field]) -> tuple[str, ...]:
    """Return the paths of fields in the block's first records that are neither a column nor a property, sorted.

    Keys are joined by `.`, a list is `[]`, and a key that is data is `*`. Lines that msgspec refuses are skipped, and
    so are the names of metadata columns: other destinations write them.
    """
    if has_whole_record(columns):
        return ()
    found: Found = {}
    shape = Struct(RecordFields.of(columns).fields)
    for line in _first_lines(block):
        record = _decoded(_LINE, line)
        if record is not None:
            _collect(record.record.data, shape, "", found)
    return tuple(sorted(_paths(found)))


def undeclared_warning(stream: object, paths: Iterable[str]) -> str:
    """Return the warning for a stream's undeclared fields. It lists NAMES_LISTED of them."""
    names = sorted(map(quoted, set(paths)))
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
            declared: Mapping[str, ColumnType] = {each.source: each.type for each in fields}
            of_path = found.setdefault(path, _Objects())
            of_path.sampled += 1
            for key, value in (_decoded(_OBJECT, text) or {}).items():
                if key not in declared and (path or key not in _METADATA):
                    of_path.add(key)
                elif isinstance(inner := declared.get(key), Struct | List):
                    _collect(value, inner, _joined(path, key), found)
        case List(element) if isinstance(element, Struct | List):
            for value in (_decoded(_ARRAY, text) or [])[:SAMPLE_ELEMENTS]:
                _collect(value, element, f"{path}[]", found)


def _joined(path: str, key: str) -> str:
    name = path_step(key)
    name = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"
    return f"{path}.{name}" if path else name


def _paths(found: Found) -> Iterator[str]:
    for path, objects in found.items():
        if objects.names:
            keys = {"*"} if objects.are_maps(path) else {"*" if _DATA.fullmatch(key) else key for key in objects.names}
            yield from (_joined(path, key) for key in keys)
