"""Partitions and sort orders as values for `config`, `tables` and writers of files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

EXTRACTED_AT = "_airbyte_extracted_at"

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The folder and the catalog value of rows whose partition source is null (Hive)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The value itself."""

    def __str__(self) -> str:
        return "identity"


@dataclass(frozen=True, slots=True)
class Bucket:
    """The 32-bit Murmur3 hash of the value, modulo `buckets` (Iceberg spec: bucket transform)."""

    buckets: int

    def __str__(self) -> str:
        return f"bucket[{self.buckets}]"


@dataclass(frozen=True, slots=True)
class Truncate:
    """The first `width` characters of a text; the next multiple of `width` below a number (Iceberg spec)."""

    width: int

    def __str__(self) -> str:
        return f"truncate[{self.width}]"


TimeUnit = Literal["year", "month", "day", "hour"]


@dataclass(frozen=True, slots=True)
class Since1970:
    """Whole units since the start of 1970 in UTC, negative before (Iceberg spec: year, month, day, hour)."""

    unit: TimeUnit

    def __str__(self) -> str:
        return self.unit


@dataclass(frozen=True, slots=True)
class Void:
    """Always null: the transform of a removed partition field (Iceberg spec: void transform)."""

    def __str__(self) -> str:
        return "void"


Part = Literal["date", "year", "month", "day", "hour"]
"""A part of the calendar date or time of day."""


@dataclass(frozen=True, slots=True)
class CalendarPart:
    """A part of the calendar date or time of day in `zone`, an IANA name: 2019, 10, 12, 8, or the whole date.

    Used for partition keys of Hive tables. Timestamps without a zone are not converted. With `digits`, the number is
    zero-padded to this width and the key is a string; with 0, the key is a bigint.
    """

    part: Part
    zone: str = "UTC"
    digits: int = 0

    def __str__(self) -> str:
        return self.part


Transform = Identity | Bucket | Truncate | Since1970 | Void | CalendarPart

PartitionValue = None | bool | int | float | Decimal | str | bytes
"""A transformed value in Iceberg's representation: dates as days, timestamps as microseconds since 1970 in UTC."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A partition field: the `transform` of the values in the column at `source`.

    `name` is the name of the partition key in the catalog. `source` is the path of names from a column to a nested
    field. A metadata column can be a source.
    """

    name: str
    source: tuple[str, ...]
    transform: Transform


class PartitionPath(Protocol):
    """The mapping from a partition's values to its folder. A frozen value that can be pickled."""

    def folder(self, values: Sequence[PartitionValue]) -> str:
        """Return the folder relative to `FilePlan.folder`, without slashes at its ends."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """The partitions of a table and their folders.

    `max_open` is the maximum number of partitions with an open file in a writer, which may keep fewer. `spec_id` is the
    ID of the Iceberg partition spec; 0 for Hive tables.
    """

    fields: tuple[PartitionField, ...]
    path: PartitionPath
    max_open: int
    spec_id: int = 0


@dataclass(frozen=True, slots=True)
class SortField:
    """A sort field: the `transform` of the column at `source`, as in `PartitionField`."""

    source: tuple[str, ...]
    ascending: bool = True
    nulls_first: bool = True
    transform: Transform = Identity()


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The order of rows in each file. `order_id` is Iceberg's; 0 if the table does not have this order."""

    fields: tuple[SortField, ...]
    order_id: int = 0


def is_timezone(name: str) -> bool:
    """Return whether the IANA time zone database of the system or Python has this zone."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


_TEXT = re.compile(
    r"(?P<name>identity|void|year|month|day|hour|(?P<sized>bucket|truncate)\[(?P<size>[1-9][0-9]{0,8})\])"
)


def parse_transform(text: str) -> Transform:
    """Parse a transform in the notation of Iceberg's metadata and the options: `bucket[16]`. Raises ValueError."""
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
