"""Where rows can be, and what is reported of it: the seam between the command and what it erases.

A place is one table, or one folder of objects of a kind. The command asks each to `require`, all of them before
anything is changed; then has each `erase`, and each `find` again: that second search must find nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.erasure.ids import IdsFile
    from destination_datalake.erasure.mask import Mask
    from destination_datalake.files.ids import Ids
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.context import Executors
    from destination_datalake.tables.table import TableName

Outcome = Literal["found", "rewritten", "removed", "left", "kept"]
"""What became of an object: another has its other rows, or nothing has any; or it is as it was, also because
`Request.keep_history` asks for it."""


class ErasedObject(msgspec.Struct, frozen=True):
    """An object that has, or had, rows of the ids, and what became of it.

    `rows_found` is -1 if they cannot be counted (bounds in metadata). `new` are the objects that have its other rows.
    One that is `left` has a `reason`: a clause about the object, with the date at which it ends if one is known.
    `versions_deleted` counts older versions of the object that were deleted too.
    """

    uri: str
    rows_found: int
    rows_removed: int = 0
    outcome: Outcome = "found"
    new: tuple[str, ...] = ()
    reason: str = ""
    versions_deleted: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: rows with one of the ids in the column, a name or the dotted path of a field.

    `id` names the request, and its folder in the ledger: the same request has the same one when it is run again.
    With `keep_history`, snapshots of so many days stay.
    """

    id: str
    column: str
    file: IdsFile
    config: Config
    access: AwsAccess
    catalog: TableCatalog
    executors: Executors
    keep_history: float | None = None
    drop_tags: bool = False
    types: dict[TableName, pa.DataType] = field(default_factory=dict)
    """The type of the column in each table, as far as it was asked for."""

    mask: Mask | None = None
    """Hides ids in what people read; places tell it of their partitions."""

    redirected_from: str | None = None
    """The column whose values came to this one, as its type does not hold them: ids that this one cannot hold are none
    of its values."""

    searched: list[Ids] = field(default_factory=list)
    """The ids as values of each type that they were looked up as."""

    _ids: dict[pa.DataType, Ids] = field(default_factory=dict)

    def ids(self, type_: pa.DataType, table: TableName) -> Ids:
        """Return the ids as values of a table's column, of this type. Raises ConfigError."""
        self.types.setdefault(table, type_)
        if type_ not in self._ids:
            typed = self.file.typed if self.redirected_from is None else self.file.possible
            self._ids[type_] = typed(type_, self.column)
            self.searched.append(self._ids[type_])
        return self._ids[type_]

    def of(self, name: str) -> str:
        """Return what a place is called: by the column too if that is not the one of the command line."""
        return name if self.redirected_from is None else f"{name}, column {self.column}"

    def redirected_to(self, column: str) -> Request:
        """Return the request for a column that has values of this one which this one's type does not hold."""
        return replace(self, column=column, redirected_from=self.column, types={}, _ids={})


@dataclass(slots=True)
class Figures:
    """What a place tells of itself besides its objects."""

    snapshots_expired: int = 0
    objects: int = 0
    objects_read: int = 0
    """Of how many of the objects the column was read: bounds and partitions leave out the others."""
    distinct_rows: int | None = None
    """How many rows the rows in files that were erased are copies of; None if that is not known."""
    notes: list[str] = field(default_factory=list)
    """What was not touched, and why: sentences."""

    def note(self, text: str) -> None:
        """Add a note, once."""
        if text not in self.notes:
            self.notes.append(text)


class Place(Protocol):
    """A table, or a folder of objects of one kind, that may have rows of the ids."""

    @property
    def name(self) -> str:
        """What it is called in the report: "Iceberg table shop.orders"."""

    @property
    def figures(self) -> Figures:
        """What it tells of itself so far."""

    def require(self) -> None:
        """Raise ConnectorError if rows cannot be erased here. Changes nothing."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield each object that has rows of the ids, as it is now: found or kept. Changes nothing."""

    def erase(self) -> Iterator[ErasedObject]:
        """Erase them; yield each object that had rows, once no more can go wrong with it.

        Idempotent: it finds out itself what is there, and what an earlier attempt, killed at any point, has done.
        """
