"""Athena's partition projection: the parameters of a table from which Athena computes partitions and their locations.

Source: Athena user guide, Supported types for partition projection. What is projected grows with the content: each key
has the smallest range that holds all its values, since Athena lists every location that a query does not exclude.
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
"""The longest list of values: half of the longest parameter that Glue takes (Glue API: ParametersMap)."""


@dataclass(frozen=True, slots=True)
class Integers:
    """All integers from `first` to `last`, with zeros before them up to `digits`."""

    first: int
    last: int
    digits: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def texts(self) -> Iterator[str]:
        """Yield the values."""
        return (f"{number:0{self.digits}}" for number in range(self.first, self.last + 1))


@dataclass(frozen=True, slots=True)
class Days:
    """All days from `first` to `last`, and up to the day after the one on which a query runs if that is later."""

    first: date
    last: date

    def __len__(self) -> int:
        return (self.last - self.first).days + 1

    def texts(self) -> Iterator[str]:
        """Yield the values."""
        return ((self.first + timedelta(days)).isoformat() for days in range(len(self)))


@dataclass(frozen=True, slots=True)
class Listed:
    """These texts, none of which has a comma."""

    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Injected:
    """Any text: Athena takes the one to which a query compares the key, and refuses other queries."""


Domain = Integers | Days | Listed | Injected
"""The values of a key for which Athena looks."""

_FIXED: Mapping[str, tuple[int, int]] = {"month": (1, 12), "day": (1, 31), "hour": (0, 23)}
"""Parts of dates and times that are projected as a whole from the beginning."""


def projection(
    folders: PartitionFolders,
    location: str,
    partitions: Collection[Sequence[str]],
    before: Mapping[str, str],
    today: date,
) -> dict[str, str]:
    """Return the parameters with which Athena finds these partitions, and those that it finds by the parameters before.

    `location` is the table's, without a trailing slash. `partitions` are values as the catalog has them. For new
    content, `before` is empty. `today` is the date in UTC.
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
    """Whether a parameter of a table is one of partition projection."""
    return parameter == LOCATION or parameter.startswith("projection.")


def _fixed(key: PartitionKey) -> Domain | None:
    match key.field.transform:
        case CalendarPart(part="month" | "day" | "hour" as part, digits=digits):
            return Integers(*_FIXED[part], digits or 1)
    return None


def _smallest(key: PartitionKey, today: date) -> Domain:
    """Return what is projected of a key that has no value yet."""
    match key.field.transform:
        case CalendarPart(part="date"):
            return Days(today, today)
        case CalendarPart(part="year", digits=digits):
            return Integers(today.year, today.year, digits or 1)
    return Listed(frozenset({key.null}))


def _grown(domain: Domain | None, key: PartitionKey, texts: frozenset[str]) -> Domain:
    """Return the domain with more values.

    Dates and numbers are ranges as long as all values are: a null is none, nor is a date that Athena does not read.
    """
    match domain, _range(key, texts):
        case None, None:
            return _listed(texts)
        case None, (Integers() | Days()) as found:
            return found
        case Integers() as known, Integers() as found:
            return Integers(min(known.first, found.first), max(known.last, found.last), known.digits)
        case Days() as known, Days() as found:
            return Days(min(known.first, found.first), max(known.last, found.last))
        case (Integers() | Days()) as known, _:
            # Before the texts are made: a range may be of millions.
            return _listed(texts.union(known.texts())) if len(known) < MAX_BYTES else Injected()
        case Listed(values), _:
            return _listed(texts | values)
    return Injected()


def _range(key: PartitionKey, texts: frozenset[str]) -> Integers | Days | None:
    """Return the smallest range of all texts; None if some are neither numbers nor dates."""
    match key.field.transform:
        case CalendarPart(part="date"):
            if not all(re.fullmatch(CATALOG_DATE, text) for text in texts):
                return None
            days = [date.fromisoformat(text) for text in texts]
            return Days(min(days), max(days))
        case CalendarPart(part=part, digits=digits):
            # The zeros of an hour are midnight's as well.
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
            # NOW is in UTC. A day later, zones ahead of UTC have the same day.
            end = "NOW+1DAYS" if last <= today else last.isoformat()
            unit = {"interval": "1", "interval.unit": "DAYS"}
            return {"type": "date", "format": "yyyy-MM-dd", "range": f"{first.isoformat()},{end}", **unit}
        case Listed(values):
            return {"type": "enum", "values": ",".join(sorted(values))}
        case Injected():
            return {"type": "injected"}


def _parsed(key: PartitionKey, parameters: Mapping[str, str], today: date) -> Domain | None:
    """Return the domain that `_parameters` has written; None if there is none."""
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
