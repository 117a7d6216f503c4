"""Athena's partition projection: table parameters from which Athena computes the partitions and their locations.

This module sets the smallest possible range for each key, because Athena lists the files in every location of the range
that the query does not exclude. When a table gets new partitions, the module extends the ranges. Source: Athena user
guide, Supported types for partition projection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TypeVar

from destination_datalake.partitioning.paths import CATALOG_DATE, PartitionFolders, PartitionKey
from destination_datalake.partitioning.spec import CalendarPart

_Bound = TypeVar("_Bound", int, date)

ENABLED = "projection.enabled"
LOCATION = "storage.location.template"

MAX_BYTES = 256 * 1024
"""Maximum length of a list of values, in bytes: half of Glue's limit for a parameter (Glue API: ParametersMap)."""


@dataclass(frozen=True, slots=True)
class Integers:
    """The domain of all integers from `first` to `last`, padded with zeros to `digits` digits."""

    first: int
    last: int
    digits: int

    def __len__(self) -> int:
        return self.last - self.first + 1

    def texts(self) -> Iterator[str]:
        """Return an iterator over the values as strings."""
        return (f"{number:0{self.digits}}" for number in range(self.first, self.last + 1))


@dataclass(frozen=True, slots=True)
class Days:
    """The domain of all days from `first` to `last`.

    If `last` is not in the future when the connector sets the parameters, Athena projects all days up to the day after
    each query.
    """

    first: date
    last: date

    def __len__(self) -> int:
        return (self.last - self.first).days + 1

    def texts(self) -> Iterator[str]:
        """Return an iterator over the values as strings."""
        return ((self.first + timedelta(days)).isoformat() for days in range(len(self)))


@dataclass(frozen=True, slots=True)
class Listed:
    """A domain with exactly the strings in `values`.

    No string may contain a comma, because Athena separates the strings by commas.
    """

    values: frozenset[str]


@dataclass(frozen=True, slots=True)
class Injected:
    """The domain of all strings. Athena can then run only queries that compare the key with constants."""


Domain = Integers | Days | Listed | Injected
"""The values that Athena projects for a partition key."""

_FIXED: Mapping[str, tuple[int, int]] = {"month": (1, 12), "day": (1, 31), "hour": (0, 23)}
"""The first and the last value of each part of a date or time for which Athena always projects the whole range."""


def projection(
    folders: PartitionFolders,
    location: str,
    partitions: Collection[Sequence[str]],
    before: Mapping[str, str],
    today: date,
) -> dict[str, str]:
    """Return table parameters with which Athena finds `partitions` and all partitions that it has found before.

    - `location` is the location of the table, without a trailing slash.
    - `partitions` contains the values of each partition, as strings in the catalog.
    - `before` contains the table's present parameters. If `before` is empty, Athena need not find other partitions than
      `partitions`.
    - `today` is the date in UTC.

    If the user has set a range of dates relative to the time of the query, such as the last three years, Athena finds
    the partitions in this range, which stays unchanged. Raises InvalidProjection if a value in `before` is invalid.
    """
    parameters = {ENABLED: "true", LOCATION: folders.location_template(location)}
    for number, key in enumerate(folders.keys):
        if _is_relative(key, before):
            prefix = f"projection.{key.name}."
            parameters |= {name: value for name, value in before.items() if name.startswith(prefix)}
            continue
        # Ranges only grow, because Athena must still find the partitions of earlier syncs.
        known = _parsed(key, before, today) or _fixed(key)
        texts = frozenset(values[number] for values in partitions)
        domain = _grown(known, key, texts) if texts else known or _smallest(key, today)
        for name, value in _parameters(domain, today).items():
            parameters[f"projection.{key.name}.{name}"] = value
    return parameters


class InvalidProjection(ValueError):
    """A table parameter of the projection has an invalid value, or is missing. `parameter` is its name."""

    def __init__(self, parameter: str) -> None:
        super().__init__(f"The value of {parameter} is invalid.")
        self.parameter = parameter


def is_projection(parameter: str) -> bool:
    """Return whether a table parameter belongs to partition projection."""
    return parameter == LOCATION or parameter.startswith("projection.")


def _fixed(key: PartitionKey) -> Domain | None:
    match key.field.transform:
        # These parts of a date have few values, so that the whole range costs little and never needs to grow.
        case CalendarPart(part="month" | "day" | "hour" as part, digits=digits):
            return Integers(*_FIXED[part], digits or 1)
    return None


def _smallest(key: PartitionKey, today: date) -> Domain:
    """Return the values of a key for a table without partitions: today, this year, or only null."""
    match key.field.transform:
        case CalendarPart(part="date"):
            return Days(today, today)
        case CalendarPart(part="year", digits=digits):
            return Integers(today.year, today.year, digits or 1)
    return Listed(frozenset({key.null}))


def _grown(domain: Domain | None, key: PartitionKey, texts: frozenset[str]) -> Domain:
    """Return the smallest supported domain that contains `domain` and the values `texts`.

    If `domain` is a range of dates or numbers, the result is a range too, unless a value is null or is a date that
    Athena cannot read. If a list of values would exceed MAX_BYTES, the result is Injected.
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
    """Return the smallest range that contains all values `texts`, or None if the key's values are not a range.

    The values are not a range if the key is not a date or a part of a date or time, if a value is null, or if Athena
    cannot read a value as a date. For hours, the string for null may be zeros. Zeros also mean midnight, so they do not
    prevent a range.
    """
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
            # With a fixed end, Athena would not find the partitions of later days before the next sync.
            end = _TOMORROW if last <= today else last.isoformat()
            unit = {"interval": "1", "interval.unit": "DAYS"}
            return {"type": "date", "format": "yyyy-MM-dd", "range": f"{first.isoformat()},{end}", **unit}
        case Listed(values):
            return {"type": "enum", "values": ",".join(sorted(values))}
        case Injected():
            return {"type": "injected"}


def _is_relative(key: PartitionKey, parameters: Mapping[str, str]) -> bool:
    """Return whether the first or the last date of a key's range depends on the time of the query.

    An end of today or tomorrow does not count, because this module sets such an end itself.
    """
    prefix = f"projection.{key.name}."
    if parameters.get(f"{prefix}type", "").lower() != "date":
        return False
    first, _, last = (text.strip() for text in parameters.get(f"{prefix}range", "").partition(","))
    return first.startswith(_NOW) or (last.startswith(_NOW) and last not in (_NOW, _TOMORROW))


def _parsed(key: PartitionKey, parameters: Mapping[str, str], today: date) -> Domain | None:
    """Return the domain that a table's parameters define for a key, or None if they define none.

    Raises InvalidProjection.
    """
    prefix = f"projection.{key.name}."
    match parameters.get(f"{prefix}type", "").lower():
        case "integer":
            digits = _WIDTH.fullmatch(parameters.get(f"{prefix}digits", "1").strip())
            if digits is None:
                raise InvalidProjection(f"{prefix}digits")
            lowest, highest = _bounds(f"{prefix}range", parameters, _integer)
            return Integers(lowest, max(lowest, highest), int(digits[0]))
        case "date":
            # NOW stands for the day of each query, so the range contains at least today.
            begin, end = _bounds(f"{prefix}range", parameters, lambda text: _date(text, today))
            return Days(begin, max(begin, end))
        case "enum":
            if f"{prefix}values" not in parameters:
                raise InvalidProjection(f"{prefix}values")
            return Listed(frozenset(parameters[f"{prefix}values"].split(",")))
        case "injected":
            return Injected()
        case "":
            return None
    raise InvalidProjection(f"{prefix}type")


_NOW, _TOMORROW = "NOW", "NOW+1DAYS"
_INTEGER = re.compile("-?[0-9]{1,18}")
_WIDTH = re.compile("[0-9]{1,2}")


def _bounds(name: str, parameters: Mapping[str, str], parse: Callable[[str], _Bound]) -> tuple[_Bound, _Bound]:
    """Return the first and the last value of the range in the parameter `name`. Raises InvalidProjection."""
    try:
        first, last = (parse(text.strip()) for text in parameters.get(name, "").split(","))
    except ValueError as error:
        raise InvalidProjection(name) from error
    return first, last


def _integer(text: str) -> int:
    if _INTEGER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def _date(text: str, today: date) -> date:
    return today if text.startswith(_NOW) else date.fromisoformat(text)
