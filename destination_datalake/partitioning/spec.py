"""Data classes for partition fields, transforms and sort orders.

The packages `config` and `tables`, and the writers of data files, share these classes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Hive's string for null in the names of folders and in the catalog's partition values."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The transform that returns the value itself."""

    def __str__(self) -> str:
        return "identity"


@dataclass(frozen=True, slots=True)
class Bucket:
    """The transform that returns the value's 32-bit Murmur3 hash, without the hash's sign bit, modulo `buckets`.

    Source: Iceberg spec, bucket transform.
    """

    buckets: int

    def __str__(self) -> str:
        return f"bucket[{self.buckets}]"


@dataclass(frozen=True, slots=True)
class Truncate:
    """The transform that returns the first `width` characters of a string, or a number rounded down.

    For integers, the result is a multiple of `width`. For decimals, the unscaled value of the result is a multiple of
    `width`. Source: Iceberg spec, truncate transform.
    """

    width: int

    def __str__(self) -> str:
        return f"truncate[{self.width}]"


TimeUnit = Literal["year", "month", "day", "hour"]


@dataclass(frozen=True, slots=True)
class Since1970:
    """The transform that returns the number of whole units since the start of 1970 in UTC.

    The number is negative for earlier times. Source: Iceberg spec, the transforms year, month, day and hour.
    """

    unit: TimeUnit

    def __str__(self) -> str:
        return self.unit


@dataclass(frozen=True, slots=True)
class Void:
    """The transform that always returns null. Replaces the transform of a removed partition field.

    Source: Iceberg spec, void transform.
    """

    def __str__(self) -> str:
        return "void"


Part = Literal["date", "year", "month", "day", "hour"]
"""A part of a date or time, or the whole date."""


@dataclass(frozen=True, slots=True)
class CalendarPart:
    """The transform that returns a date, or a part of a date or time, such as the month 10 or the hour 8.

    Only Hive tables use this transform. `zone` is the IANA name of a time zone. If a timestamp has a zone, the
    transform first converts it to the local time in `zone`. If the partition key is a string, zeros pad the number to
    `digits` digits. With 0, there is no padding.
    """

    part: Part
    zone: str = "UTC"
    digits: int = 0

    def __str__(self) -> str:
        return self.part


Transform = Identity | Bucket | Truncate | Since1970 | Void | CalendarPart

PartitionValue = None | bool | int | float | Decimal | str | bytes
"""A value after a transform, in Iceberg's representation.

A date is the number of days since 1970-01-01. A timestamp is the number of microseconds since the start of 1970, in UTC
if the timestamp has a zone.
"""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition field. Its values are the results of `transform` for the values of the column at `source`.

    `name` is the name of the partition key in the catalog. `source` is a path of names: the name of a column of the
    stream or of a metadata column, followed by the names that lead to a nested field, if any.
    """

    name: str
    source: tuple[str, ...]
    transform: Transform


class PartitionPath(Protocol):
    """A mapping from the values of a partition to the partition's folder.

    Implementations are immutable, and pickle can serialise them.
    """

    def folder(self, values: Sequence[PartitionValue]) -> str:
        """Return the folder of a partition, relative to `FilePlan.folder`, without leading and trailing slashes."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partition fields of a table, and the rules for the folders of its partitions.

    `max_open` is the maximum number of partitions for which a writer keeps a file open at the same time. `spec_id` is
    the ID of the Iceberg partition spec, or 0 for a Hive table.
    """

    fields: tuple[PartitionField, ...]
    path: PartitionPath
    max_open: int
    spec_id: int = 0


@dataclass(frozen=True, slots=True)
class SortField:
    """A field by which writers sort rows: the results of `transform` for the values of the column at `source`.

    `source` has the same form as in `PartitionField`.
    """

    source: tuple[str, ...]
    ascending: bool = True
    nulls_first: bool = True
    transform: Transform = Identity()


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The order of the rows in each file.

    `order_id` is the ID of the sort order in Iceberg's metadata, or 0 if the metadata does not contain this order.
    """

    fields: tuple[SortField, ...]
    order_id: int = 0


def is_timezone(name: str) -> bool:
    """Return whether the IANA time zone database contains this zone.

    Reads the copy of the operating system or, if there is none, the copy in a Python package.
    """
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


_TEXT = re.compile(
    r"(?P<name>identity|void|year|month|day|hour|(?P<sized>bucket|truncate)\[(?P<size>[1-9][0-9]{0,8})\])"
)


def parse_transform(text: str) -> Transform:
    """Return the transform with this name, such as `bucket[16]`. Iceberg and the options use the same names.

    Raises ValueError for an unknown name.
    """
    parsed = _TEXT.fullmatch(text)
    if parsed is None:
        raise ValueError(f"{text} is not a transform")
    match parsed["name"], parsed["sized"]:
        case "identity", _:
            return Identity()
        case "void", _:
            return Void()
        case _, "bucket":
            return Bucket(int(parsed["size"]))
        case _, "truncate":
            return Truncate(int(parsed["size"]))
        case ("year" | "month" | "day" | "hour") as unit, _:
            return Since1970(unit)
    raise AssertionError(text)
