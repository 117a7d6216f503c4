"""Texts turned into values a column at a time, where each is exactly what the careful path would make of it.

A text is plain for a column type if Arrow casts it to the very value that `coerce` gives. The patterns say less than
Arrow and `coerce` both take: what does not match is odd, costs a careful look, and is never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.types import Boolean, ColumnType, Date, Decimal, Float64, Int64, String, Timestamp

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""0001-01-01 and 9999-12-31 in days since 1970-01-01: beyond them engines disagree."""

_DAY_MICROSECONDS = 86_400_000_000
_FIRST_MOMENT, _LAST_MOMENT = FIRST_DAY * _DAY_MICROSECONDS, (LAST_DAY + 1) * _DAY_MICROSECONDS - 1

# Years whose every moment is of a year from 1 to 9999 in any zone; the days that each month has in every year.
_DAY = (
    r"(?:[1-8][0-9]{3}|9[0-8][0-9]{2})-(?:(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])"
    r"|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
)
_TIME = r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9])"
_WITH_ZONE = rf"({_TIME}){_ZONE}$"


def _decimal(type_: Decimal) -> str:
    before = type_.precision - type_.scale
    whole = f"[0-9]{{1,{before}}}" if before else "0"
    return rf"^-?{whole}(?:\.[0-9]{{1,{type_.scale}}})?$" if type_.scale else f"^-?{whole}$"


PLAIN: Mapping[type[ColumnType], Callable[[Any], str]] = {
    Boolean: lambda _: "^(?:true|false)$",
    Int64: lambda _: r"^-?[0-9]{1,18}$",
    # Exponents that neither overflow nor round to zero.
    Float64: lambda _: r"^-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?$",
    Decimal: _decimal,
    String: lambda _: r"^[^\\]*$",
    Date: lambda _: f"^{_DAY}$",
    Timestamp: lambda _: f"^{_DAY}(?:{_TIME}{_ZONE}?)?$",
}
"""Types whose texts can be turned in bulk (numbers as wide as they become): the pattern of those that are plain."""


class Bulk(NamedTuple):
    """Values as `arrow_type` of their type; where `odd` is true the text was not plain and the value is null."""

    values: pa.Array[Any]
    odd: pa.Array[Any] | None


def parse_vectorised(texts: Any, type_: ColumnType) -> Bulk:
    """The values of an array of strings, nulls being nulls. `type_` is one that PLAIN has."""
    whole = _well_formed(texts, type_)
    if whole is not None:
        return Bulk(whole, None)
    plain: Any = pc.match_substring_regex(texts, PLAIN[type(type_)](type_))
    if pc.all(plain).as_py() is not False:
        return Bulk(_cast(texts, type_), None)
    return Bulk(_cast(pc.if_else(plain, texts, None), type_), pc.fill_null(pc.invert(plain), False))


def within_calendar(array: Any) -> bool:
    """Whether all dates or timestamps (microseconds) are of the years 1 to 9999."""
    is_date = pa.types.is_date32(array.type)
    bounds = pc.min_max(array.view(pa.int32() if is_date else pa.int64()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    first, last = (FIRST_DAY, LAST_DAY) if is_date else (_FIRST_MOMENT, _LAST_MOMENT)
    return low is None or (low >= first and high <= last)


def _well_formed(texts: Any, type_: ColumnType) -> pa.Array[Any] | None:
    """Days or moments, if all are written as Arrow reads them: it takes nothing that `coerce` reads otherwise."""
    match type_:
        case Date() | Timestamp(zoned=False):
            tries: tuple[pa.DataType, ...] = (arrow_type(type_),)
        case Timestamp():
            tries = (pa.timestamp("us", "UTC"), pa.timestamp("us"))
        case _:
            return None
    for arrow in tries:
        try:
            array = texts.cast(arrow)
        except pa.ArrowInvalid:
            continue
        return array.cast(arrow_type(type_)) if within_calendar(array) else None
    return None


def _cast(texts: Any, type_: ColumnType) -> Any:
    match type_:
        case String():
            return texts
        case Timestamp(zoned=False):
            return pc.replace_substring_regex(texts, _WITH_ZONE, r"\1").cast(arrow_type(type_))
        case Timestamp():
            with_zone = pc.match_substring_regex(texts, _WITH_ZONE)
            instants = pc.if_else(with_zone, texts, None).cast(pa.timestamp("us", "UTC"))
            clocks = pc.if_else(with_zone, None, texts).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
            return pc.coalesce(instants, clocks)
        case _:
            return texts.cast(arrow_type(type_))
