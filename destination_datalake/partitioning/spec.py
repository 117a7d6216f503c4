"""Data classes of partition fields, transforms and sort orders, for `config`, `tables` and the writers of files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

EXTRACTED_AT = "_airbyte_extracted_at"

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""Hive's text for null in the names of folders and in the catalog's partition values."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The transform that returns the value itself."""

    def __str__(self) -> str:
        return "identity"


@dataclass(frozen=True, slots=True)
class Bucket:
    """The 32-bit Murmur3 hash of the value without its sign bit, modulo `buckets` (Iceberg spec: bucket transform)."""

    buckets: int

    def __str__(self) -> str:
        return f"bucket[{self.buckets}]"


@dataclass(frozen=True, slots=True)
class Truncate:
    """The first `width` characters of a text, or a number rounded down to a multiple of `width` (Iceberg spec)."""

    width: int

    def __str__(self) -> str:
        return f"truncate[{self.width}]"


TimeUnit = Literal["year", "month", "day", "hour"]


@dataclass(frozen=True, slots=True)
class Since1970:
    """The number of whole units since the start of 1970 in UTC (Iceberg spec: year, month, day, hour).

    The number is negative for earlier times.
    """

    unit: TimeUnit

    def __str__(self) -> str:
        return self.unit


@dataclass(frozen=True, slots=True)
class Void:
    """The transform that always returns null. Removed partition fields use it (Iceberg spec: void transform)."""

    def __str__(self) -> str:
        return "void"


Part = Literal["date", "year", "month", "day", "hour"]
"""A part of a calendar date or of a time of day, or the whole date."""


@dataclass(frozen=True, slots=True)
class CalendarPart:
    """The transform that returns the whole date, or a part of a date or time, such as the month 10 or the hour 8.

    Partition keys of Hive tables use this transform. `zone` is the IANA name of the time zone to which timestamps are
    converted, except timestamps without a zone. `digits` is the width to which numbers are padded with zeros in keys
    that are strings. 0 means no padding.
    """

    part: Part
    zone: str = "UTC"
    digits: int = 0

    def __str__(self) -> str:
        return self.part


Transform = Identity | Bucket | Truncate | Since1970 | Void | CalendarPart

PartitionValue = None | bool | int | float | Decimal | str | bytes
"""A transformed value in Iceberg's representation.

Dates are days since 1970, and timestamps are microseconds since 1970 in UTC.
"""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition field, whose values result from the `transform` of the values in the column at `source`.

    `name` is the name of the partition key in the catalog. `source` is a path of names: a column, or a column and the
    fields that lead to a nested field. Metadata columns can also be sources.
    """

    name: str
    source: tuple[str, ...]
    transform: Transform


class PartitionPath(Protocol):
    """The mapping of a partition's values to its folder. Implementations are immutable and can be pickled."""

    def folder(self, values: Sequence[PartitionValue]) -> str:
        """Return the folder of a partition, relative to `FilePlan.folder`, without leading and trailing slashes."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partition fields of a table, and the folders of its partitions.

    `max_open` is the maximum number of partitions for which a writer keeps a file open; a writer may keep fewer.
    `spec_id` is the ID of the Iceberg partition spec, or 0 for Hive tables.
    """

    fields: tuple[PartitionField, ...]
    path: PartitionPath
    max_open: int
    spec_id: int = 0


@dataclass(frozen=True, slots=True)
class SortField:
    """A sort field. Rows are sorted by the `transform` of the column at `source` (see `PartitionField`)."""

    source: tuple[str, ...]
    ascending: bool = True
    nulls_first: bool = True
    transform: Transform = Identity()


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The order of the rows in each file.

    `order_id` is the ID of Iceberg's sort order, or 0 if the table's metadata do not contain this order.
    """

    fields: tuple[SortField, ...]
    order_id: int = 0


def is_timezone(name: str) -> bool:
    """Return whether the IANA time zone database of the system or of Python contains this zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


_TEXT = re.compile(
    r"(?P<name>identity|void|year|month|day|hour|(?P<sized>bucket|truncate)\[(?P<size>[1-9][0-9]{0,8})\])"
)


def parse_transform(text: str) -> Transform:
    """Return the transform that a text denotes, such as `bucket[16]`, in the notation of Iceberg and of the options.

    Raises ValueError.
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
