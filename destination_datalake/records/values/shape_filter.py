"""Which JSON texts of objects and lists are as their type says, told fast: a filter before Arrow, not a judgement.

One odd value has Arrow refuse all that it is given. msgspec says of one text after the other whether Arrow will likely
take it; what Arrow refuses all the same goes through the careful path, and so does what msgspec refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from destination_datalake.records.envelope import can_be_renamed
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Float32,
    Float64,
    Int32,
    Int64,
    List,
    String,
    Struct,
    Timestamp,
)


@lru_cache(maxsize=1024)
def usual(type_: ColumnType) -> Callable[[str], bool]:
    """Whether a JSON text is likely one that Arrow reads as this type."""
    decode = msgspec.json.Decoder(_shape(type_)).decode

    def is_usual(text: str) -> bool:
        try:
            decode(text)
        except (msgspec.DecodeError, RecursionError):
            return False
        return True

    return is_usual


def _shape(type_: ColumnType) -> Any:
    """What msgspec is to check."""
    match type_:
        case Boolean():
            return bool
        case Int32() | Int64():
            return int
        case Float32() | Float64():
            return float
        case String() | Date() | Timestamp():
            return str
        case List(element):
            return list[_shape(element) | None]  # type: ignore[misc]
        case Struct(fields):
            members = [
                (f"f{i}", _shape(field.type) | None, msgspec.field(name=field.source, default=None))
                for i, field in enumerate(fields)
                if can_be_renamed(field.source)
            ]
            return msgspec.defstruct("Object", members, gc=False)
        case _:
            return Any
