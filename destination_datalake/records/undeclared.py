"""Find fields in records that the stream's schema does not declare.

The connector does not write such fields, but logs a warning about them. This module searches only the first records of
a unit, which is the part of a batch that one task encodes. The keyword `additionalProperties` in the schema has no
effect. The module does not search values that the table stores as JSON text, because the table stores these values
whole.
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
"""Maximum number of bytes to search at the start of a unit. SAMPLE_LINES is the maximum number of lines."""

SAMPLE_ELEMENTS = 10
"""Maximum number of elements to search in a list."""

MANY_NAMES = 20
"""Maximum number of different undeclared names in the objects at a path.

If there are more names, the objects count as maps, whose keys are data. The warning then contains `*` instead of the
keys.
"""

MANY_OBJECTS = 4
"""Minimum number of objects at a path for a second rule about maps.

If there are at least so many objects, and no undeclared name is in more than half of them, the objects count as maps.
"""

NAMES_LISTED = 20
_METADATA = {column.name for column in METADATA_COLUMNS}
_MAX_NAME_LENGTH = 100

# Matches keys that are data instead of names: e-mail addresses, numbers, dates, and IDs of hexadecimal digits.
_DATA = re.compile(r".*@.*|[-+\d\s.,:/TZ()]*\d[-+\d\s.,:/TZ()]*|(?=.*\d)[0-9a-fA-F-]{16,}", re.DOTALL)


@dataclass(slots=True)
class _Objects:
    """The objects in the sample at one path.

    `sampled` is the number of objects. `names` maps each undeclared name to the number of objects that contain it.
    """

    sampled: int = 0
    names: Counter[str] = field(default_factory=Counter)

    def add(self, name: str) -> None:
        """Count an undeclared name in one object. Do nothing if the objects already have more than MANY_NAMES names."""
        if len(self.names) <= MANY_NAMES:
            self.names[name] += 1

    def are_maps(self, path: str) -> bool:
        """Return whether the objects at this path count as maps, whose keys are data.

        The path of the records themselves is empty. Records count as maps only if they have more than MANY_NAMES
        undeclared names.
        """
        if len(self.names) > MANY_NAMES:
            return True
        return bool(path) and self.sampled >= MANY_OBJECTS and max(self.names.values()) * 2 <= self.sampled


ObjectsByPath = dict[str, _Objects]


def undeclared_fields(block: bytes | memoryview, columns: Sequence[Field]) -> tuple[str, ...]:
    """Return the sorted paths of undeclared fields in the first records of a block.

    A field is undeclared if it is neither a column nor a property of a declared object. In paths, `.` joins keys, `[]`
    stands for a list, and `*` stands for a key that is data. Skips lines that the library msgspec rejects. Also skips
    fields with the names of metadata columns, because records from tables of other destinations contain such fields.
    """
    if has_whole_record(columns):
        return ()
    objects: ObjectsByPath = {}
    declared = Struct(RecordFields.for_columns(columns).fields)
    for line in _first_lines(block):
        record = _decode(_LINE, line)
        if record is not None:
            _collect(record.record.data, declared, "", objects)
    return tuple(sorted(_paths(objects)))


def undeclared_warning(stream: object, paths: Iterable[str]) -> str:
    """Return the warning about a stream's undeclared fields. The warning lists at most NAMES_LISTED fields."""
    names = sorted(map(quoted, set(paths)))
    hidden = len(names) - NAMES_LISTED
    listed = ", ".join(names[:NAMES_LISTED]) + (f" and {hidden:,} more" if hidden > 0 else "")
    return (
        f"Stream {stream}: the connector does not write fields that the schema does not declare: {listed}. To add them "
        "as columns, refresh the source schema, or declare them in the source. This sync does not repeat the warning."
    )


# Created once, because creating a decoder takes longer than decoding a line.
_LINE = msgspec.json.Decoder(RecordLine[RawRecord[Raw]])
_OBJECT = msgspec.json.Decoder(dict[str, Raw])
_ARRAY = msgspec.json.Decoder(list[Raw])


def _first_lines(block: bytes | memoryview) -> Iterator[bytes]:
    # The last line may be cut off. msgspec rejects it then.
    return iter(bytes(block[:SAMPLE_BYTES]).split(b"\n")[:SAMPLE_LINES])


def _decode(decoder: Any, text: bytes | Raw) -> Any:
    """Return the decoded value of a JSON text, or None if msgspec rejects the text."""
    try:
        return decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _collect(text: Raw, type_: ColumnType, path: str, objects: ObjectsByPath) -> None:
    """Find the undeclared names in the JSON text of a value at `path` with this type, and count them in `objects`."""
    match type_:
        case Struct(fields):
            declared: Mapping[str, ColumnType] = {field.source: field.type for field in fields}
            objects_at_path = objects.setdefault(path, _Objects())
            objects_at_path.sampled += 1
            for key, value in (_decode(_OBJECT, text) or {}).items():
                if key not in declared and (path or key not in _METADATA):
                    objects_at_path.add(key)
                elif isinstance(nested := declared.get(key), Struct | List):
                    _collect(value, nested, _join(path, key), objects)
        case List(element) if isinstance(element, Struct | List):
            for value in (_decode(_ARRAY, text) or [])[:SAMPLE_ELEMENTS]:
                _collect(value, element, f"{path}[]", objects)


def _join(path: str, key: str) -> str:
    name = path_step(key)
    name = name if len(name) <= _MAX_NAME_LENGTH else f"{name[:_MAX_NAME_LENGTH]}…"
    return f"{path}.{name}" if path else name


def _paths(objects_by_path: ObjectsByPath) -> Iterator[str]:
    for path, objects in objects_by_path.items():
        if objects.names:
            keys = {"*"} if objects.are_maps(path) else {"*" if _DATA.fullmatch(key) else key for key in objects.names}
            yield from (_join(path, key) for key in keys)
