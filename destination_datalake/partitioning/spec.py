"""Partitions and sort orders as values, which `config`, `tables` and the writers of files exchange."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

EXTRACTED_AT = "_airbyte_extracted_at"

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The folder, and the value in the catalog, of rows that have no value to be partitioned by (Hive)."""


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
    """Whole units from the beginning of 1970 in UTC, negative before (Iceberg spec: year, month, day, hour)."""

    unit: TimeUnit

    def __str__(self) -> str:
        return self.unit


@dataclass(frozen=True, slots=True)
class Void:
    """Always null (Iceberg spec: void transform): what is left of a partition field that was removed."""

    def __str__(self) -> str:
        return "void"


Part = Literal["date", "year", "month", "day", "hour"]
"""A part of the calendar date or time of day."""


@dataclass(frozen=True, slots=True)
class CalendarPart:
    """A part of the calendar date or time of day in `zone`, an IANA name: 2019, 10, 12, 8, or the whole date.

    Partition keys of Hive tables. Timestamps without a zone are taken as they are. `digits` pads with zeros to that
    width, which makes the key a string; 0 leaves the number as it is, which makes the key a bigint.
    """

    part: Part
    zone: str = "UTC"
    digits: int = 0

    def __str__(self) -> str:
        return self.part


Transform = Identity | Bucket | Truncate | Since1970 | Void | CalendarPart

PartitionValue = None | bool | int | float | Decimal | str | bytes
"""A transformed value in Iceberg's own terms: dates as days and timestamps as microseconds since 1970, in UTC."""


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One field of a partition: `transform` of the values in the column at `source`.

    `name` is the name of the partition key in the catalog. `source` are the names from a column of the table down to a
    field inside it. A metadata column can be a source.
    """

    name: str
    source: tuple[str, ...]
    transform: Transform


class PartitionPath(Protocol):
    """From the values of a partition to its folder. A frozen value that can be pickled."""

    def folder(self, values: Sequence[PartitionValue]) -> str:
        """Return the folder relative to `FilePlan.folder`, without slashes at its ends."""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How the rows of one table are assigned to partitions and where the files of each lie.

    `max_open` is the most partitions that a writer keeps a file open for while rows arrive; it may keep fewer.
    `spec_id` is the id of the Iceberg partition spec; 0 for Hive tables.
    """

    fields: tuple[PartitionField, ...]
    path: PartitionPath
    max_open: int
    spec_id: int = 0


@dataclass(frozen=True, slots=True)
class SortField:
    """One field of a sort order: `transform` of the column at `source`, as in `PartitionField`."""

    source: tuple[str, ...]
    ascending: bool = True
    nulls_first: bool = True
    transform: Transform = Identity()


@dataclass(frozen=True, slots=True)
class SortOrder:
    """The order of rows within each file. `order_id` is Iceberg's; 0 if the table has none for it."""

    fields: tuple[SortField, ...]
    order_id: int = 0


def is_timezone(name: str) -> bool:
    """Return whether the IANA time zone database, the system's or Python's, has a zone of that name."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


_TEXT = re.compile(
    r"(?P<name>identity|void|year|month|day|hour|(?P<sized>bucket|truncate)\[(?P<size>[1-9][0-9]{0,8})\])"
)


def parse_transform(text: str) -> Transform:
    """Read a transform as Iceberg's metadata and the options write it: `bucket[16]`. Raises ValueError."""
    found = _TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is not a transform")
    match found["name"], found["sized"]:
        case "identity", _:
            return Identity()
        case "void", _:
            return Void()
        case _, "bucket":
            return Bucket(int(found["size"]))
        case _, "truncate":
            return Truncate(int(found["size"]))
        case ("year" | "month" | "day" | "hour") as unit, _:
            return Since1970(unit)
    raise AssertionError(text)
