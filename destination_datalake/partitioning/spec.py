"""Data classes for partition fields, transforms and sort orders, shared by `config`, `tables` and file writers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

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
    """The first `width` characters of a text, or a number rounded down to a multiple of `width`.

    Decimals are rounded by their unscaled values (Iceberg spec: truncate transform).
    """

    width: int

    def __str__(self) -> str:
        return f"truncate[{self.width}]"


TimeUnit = Literal["year", "month", "day", "hour"]


@dataclass(frozen=True, slots=True)
class Since1970:
    """The number of whole units since the start of 1970 in UTC, negative for earlier times.

    Source: Iceberg spec, the transforms year, month, day and hour.
    """

    unit: TimeUnit

    def __str__(self) -> str:
        return self.unit


@dataclass(frozen=True, slots=True)
class Void:
    """The transform that always returns null, used for removed partition fields (Iceberg spec: void transform)."""

    def __str__(self) -> str:
        return "void"


Part = Literal["date", "year", "month", "day", "hour"]
"""A part of a date or time, or the whole date."""


@dataclass(frozen=True, slots=True)
class CalendarPart:
    """The transform that returns a date, or a part of a date or time, such as the month 10 or the hour 8.

    Only Hive tables use this transform. `zone` is the IANA name of the time zone to which timestamps with a zone are
    converted first. If the partition key is a string, `digits` is the width to which numbers are padded with zeros. 0
    means no padding.
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
    """A partition field. Its values are those of the column at `source`, after `transform` is applied.

    `name` is the name of the partition key in the catalog. `source` is a path of names: a column or metadata column,
    followed by the names that lead to a nested field, if any.
    """

    name: str
    source: tuple[str, ...]
    transform: Transform


class PartitionPath(Protocol):
    """Maps the values of a partition to its folder. Implementations are immutable and can be pickled."""

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
    """A field by which rows are sorted: the column at `source`, after `transform` is applied.

    `source` has the same form as in `PartitionField`.
    """

    source: tuple[str, ...]
    ascending: bool = True
    nulls_first: bool = True
    transform: Transform = Identity()


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The order of the rows in each file.

    `order_id` is the ID of the sort order in Iceberg's metadata, or 0 if the metadata do not contain this order.
    """

    fields: tuple[SortField, ...]
    order_id: int = 0


def is_timezone(name: str) -> bool:
    """Return whether the IANA time zone database contains this zone. Uses the system's or Python's copy."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


_TEXT = re.compile(
    r"(?P<name>identity|void|year|month|day|hour|(?P<sized>bucket|truncate)\[(?P<size>[1-9][0-9]{0,8})\])"
)


def parse_transform(text: str) -> Transform:
    """Return the transform for its name in Iceberg and in the options, such as `bucket[16]`.

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
