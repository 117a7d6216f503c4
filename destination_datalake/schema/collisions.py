"""Fields of a stream whose names meet in one identifier, for telling people which column is whose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from destination_datalake.schema.names import Naming
from destination_datalake.schema.types import ColumnType, Field, List, Struct


@dataclass(frozen=True, slots=True)
class Collision:
    """Fields of one object that come to one identifier, or one that comes to a reserved one.

    `inside` holds the sources of the fields around them, the outermost first.
    """

    inside: tuple[str, ...]
    fields: tuple[Field, ...]

    def __str__(self) -> str:
        columns = ", ".join(f"{field.source!r} is {field.name}" for field in self.fields)
        return f"in {'.'.join(map(repr, self.inside))} {columns}" if self.inside else columns


def collisions(columns: Sequence[Field], naming: Naming) -> Iterator[Collision]:
    """Every collision among the columns that `naming` has named, and in the structs in them."""
    return _collisions(columns, naming, ())


def _collisions(fields: Sequence[Field], naming: Naming, inside: tuple[str, ...]) -> Iterator[Collision]:
    meeting: dict[str, list[Field]] = {}
    for field in fields:
        meeting.setdefault(naming.identifier(field.source), []).append(field)
    for identifier, those in meeting.items():
        if any(field.name != identifier for field in those):
            yield Collision(inside, tuple(those))
    for field in fields:
        yield from _collisions(_fields(field.type), naming.inside, (*inside, field.source))


def _fields(type_: ColumnType) -> Sequence[Field]:
    match type_:
        case Struct(fields):
            return fields
        case List(element):
            return _fields(element)
    return ()
