"""Versions of rows, and which of them a deduplicated table keeps: the rules of Airbyte's generated MERGE statements."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import NamedTuple

Value = None | bool | int | float | Decimal | str | date | datetime


@dataclass(frozen=True, eq=False)
class Version:
    """One record as it was sent, once: equal to itself alone. `serial` numbers them in the order of their arrival."""

    serial: int
    extracted_at: int
    values: Mapping[str, Value]

    def __repr__(self) -> str:
        return f"#{self.serial}"


class Definition(NamedTuple):
    """By which columns rows are versions of one row: as `Deduplication` of the connector has them."""

    key: tuple[str, ...]
    cursor: str | None = None
    deleted_at: str | None = None

    def key_of(self, version: Version) -> tuple[Hashable, ...]:
        """Return what is equal for versions of the same row: null is null, NaN is NaN, and -0.0 is 0.0."""
        return tuple(_comparable(version.values.get(column)) for column in self.key)

    def deletes(self, version: Version) -> bool:
        """Whether this version, if it is the latest, removes the row."""
        return self.deleted_at is not None and version.values.get(self.deleted_at) is not None

    def age(self, version: Version) -> tuple[tuple[object, ...], int]:
        """Return what the later version has more of, without the order of arrival."""
        cursor = () if self.cursor is None else _rank(version.values.get(self.cursor))
        return cursor, version.extracted_at


Rows = frozenset[Version]


def latest(rows: Iterable[Version], by: Definition) -> dict[tuple[Hashable, ...], Version]:
    """Return the version of each key that wins over the others."""
    winners: dict[tuple[Hashable, ...], Version] = {}
    for version in sorted(rows, key=lambda version: (*by.age(version), version.serial)):
        winners[by.key_of(version)] = version
    return winners


def merged(stored: Rows, pending: Rows, by: Definition) -> Rows:
    """Return what a table of these rows, unique by the key, has after these have been merged into it."""
    table = {by.key_of(version): version for version in stored}
    assert len(table) == len(stored), "the table is not unique by its key"
    for key, version in latest(pending, by).items():
        if key in table and by.age(table[key]) > by.age(version):
            continue
        if by.deletes(version):
            table.pop(key, None)
        else:
            table[key] = version
    return frozenset(table.values())


def deduplicated(rows: Rows, by: Definition) -> Rows:
    """Return what is left of rows that were only appended so far, once the table is unique by the key."""
    return merged(frozenset(), rows, by)


def _comparable(value: Value) -> Hashable:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value if value is None else (value,)


def _rank(value: Value) -> tuple[object, ...]:
    """Return what orders values of one column: null below NaN, NaN below all else, texts by their bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float) and math.isnan(value):
        return (1,)
    return (2, value.encode() if isinstance(value, str) else value)
