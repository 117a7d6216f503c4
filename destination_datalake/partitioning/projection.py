"""Athena's partition projection: table parameters from which Athena computes the partitions and their locations.

Each key gets the smallest range that contains all of its values, because Athena lists every projected location that a
query does not exclude. Ranges grow when a table gets new partitions. Source: Athena user guide, Supported types for
partition projection.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from destination_datalake.partitioning.paths import CATALOG_DATE, PartitionFolders, PartitionKey
from destination_datalake.partitioning.spec import CalendarPart

ENABLED = "projection.enabled"
LOCATION = "storage.location.template"

MAX_BYTES = 256 * 1024
"""The maximum length of a list of values in bytes: half of Glue's limit for a parameter (Glue API: ParametersMap)."""


@dataclass(frozen=True, slots=True)
class Integers:
    """All integers from `first` to `last`, padded with zeros to `digits` digits."""

    first: int
    last: int
    digits: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def texts(self) -> Iterator[str]:
        """Yield the values as texts."""
        return (f"{number:0{self.digits}}" for number in range(self.first, self.last + 1))


@dataclass(frozen=True, slots=True)
class Days:
    """All days from `first` to `last`.

    If `last` is not after today, Athena projects all days up to the day after the query.
    """

    first: date
    last: date

    def __len__(self) -> int:
        return (self.last - self.first).days + 1

    def texts(self) -> Iterator[str]:
        """Yield the values as texts."""
        return ((self.first + timedelta(days)).isoformat() for days in range(len(self)))


@dataclass(frozen=True, slots=True)
class Listed:
    """A set of texts. They contain no commas, because Athena separates them by commas."""

    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Injected:
    """Any text. Athena can then only run queries that compare the key with constants."""


Domain = Integers | Days | Listed | Injected
"""The values that Athena projects for a partition key."""

_FIXED: Mapping[str, tuple[int, int]] = {"month": (1, 12), "day": (1, 31), "hour": (0, 23)}
"""The first and the last value of the parts of dates and times whose whole range is always projected."""


def projection(
    folders: PartitionFolders,
    location: str,
    partitions: Collection[Sequence[str]],
    before: Mapping[str, str],
    today: date,
) -> dict[str, str]:
    """Return table parameters with which Athena finds `partitions` and all partitions that were projected before.

    `partitions` contains the values of each partition, as texts in the catalog. `before` are the table's present
    parameters, or is empty to project only `partitions`. `location` is the location of the table, without a trailing
    slash. `today` is the date in UTC.
    """
    parameters = {ENABLED: "true", LOCATION: folders.location_template(location)}
    for number, key in enumerate(folders.keys):
        known = _parsed(key, before, today) or _fixed(key)
        texts = frozenset(values[number] for values in partitions)
        domain = _grown(known, key, texts) if texts else known or _smallest(key, today)
        for name, value in _parameters(domain, today).items():
            parameters[f"projection.{key.name}.{name}"] = value
    return parameters


def is_projection(parameter: str) -> bool:
    """Return whether a table parameter belongs to partition projection."""
    return parameter == LOCATION or parameter.startswith("projection.")


def _fixed(key: PartitionKey) -> Domain | None:
    match key.field.transform:
        case CalendarPart(part="month" | "day" | "hour" as part, digits=digits):
            return Integers(*_FIXED[part], digits or 1)
    return None


def _smallest(key: PartitionKey, today: date) -> Domain:
    """Return the values to project for a key of a table without partitions: today, this year, or only null."""
    match key.field.transform:
        case CalendarPart(part="date"):
            return Days(today, today)
        case CalendarPart(part="year", digits=digits):
            return Integers(today.year, today.year, digits or 1)
    return Listed(frozenset({key.null}))


def _grown(domain: Domain | None, key: PartitionKey, texts: frozenset[str]) -> Domain:
    """Return the smallest supported domain that contains `domain` and the values `texts`.

    Dates and numbers remain ranges, unless a value is null or a date that Athena cannot read. A list that would exceed
    MAX_BYTES becomes Injected.
    """
    match domain, _range(key, texts):
        case None, None:
            return _listed(texts)
        case None, (Integers() | Days()) as new:
            return new
        case Integers() as known, Integers() as new:
            return Integers(min(known.first, new.first), max(known.last, new.last), known.digits)
        case Days() as known, Days() as new:
            return Days(min(known.first, new.first), max(known.last, new.last))
        case (Integers() | Days()) as known, _:
            # Check the length first, because a range may have millions of values.
            return _listed(texts.union(known.texts())) if len(known) < MAX_BYTES else Injected()
        case Listed(values), _:
            return _listed(texts | values)
    return Injected()


def _range(key: PartitionKey, texts: frozenset[str]) -> Integers | Days | None:
    """Return the smallest range that contains all texts, or None if some of them are not numbers or dates."""
    match key.field.transform:
        case CalendarPart(part="date"):
            if not all(re.fullmatch(CATALOG_DATE, text) for text in texts):
                return None
            days = [date.fromisoformat(text) for text in texts]
            return Days(min(days), max(days))
        case CalendarPart(part=part, digits=digits):
            # For hours, zeros stand for null, but are also a valid number: midnight.
            if key.null in texts and not (part == "hour" and key.null.isdigit()):
                return None
            numbers = [int(text) for text in texts]
            return Integers(min(numbers), max(numbers), digits or 1)
    return None


def _listed(texts: frozenset[str]) -> Domain:
    return Listed(texts) if sum(len(text.encode()) + 1 for text in texts) <= MAX_BYTES else Injected()


def _parameters(domain: Domain, today: date) -> dict[str, str]:
    match domain:
        case Integers(first, last, digits):
            return {"type": "integer", "range": f"{first:0{digits}},{last:0{digits}}", "digits": str(digits)}
        case Days(first, last):
            # NOW is in UTC. The additional day is for time zones that are ahead of UTC.
            end = "NOW+1DAYS" if last <= today else last.isoformat()
            unit = {"interval": "1", "interval.unit": "DAYS"}
            return {"type": "date", "format": "yyyy-MM-dd", "range": f"{first.isoformat()},{end}", **unit}
        case Listed(values):
            return {"type": "enum", "values": ",".join(sorted(values))}
        case Injected():
            return {"type": "injected"}


def _parsed(key: PartitionKey, parameters: Mapping[str, str], today: date) -> Domain | None:
    """Return the domain of a key that a table's parameters describe, or None if they do not project the key."""
    prefix = f"projection.{key.name}."
    match parameters.get(f"{prefix}type"):
        case "integer":
            first, last = parameters[f"{prefix}range"].split(",")
            return Integers(int(first), int(last), int(parameters.get(f"{prefix}digits", "1")))
        case "date":
            first, last = parameters[f"{prefix}range"].split(",")
            begin = date.fromisoformat(first)
            return Days(begin, max(begin, today) if last.startswith("NOW") else date.fromisoformat(last))
        case "enum":
            return Listed(frozenset(parameters[f"{prefix}values"].split(",")))
        case "injected":
            return Injected()
    return None
