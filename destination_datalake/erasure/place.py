"""Define the interface between the command and its targets, and the values of the report.

A target is one table, or one folder of objects of one kind. The command calls `require` of all targets before it
changes anything, then `erase` of each, and finally `find` of each: this second search must find nothing.
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
"""The outcome of an object: "rewritten" without the rows; "removed"; "left" unchanged, as it could not be erased; or
"kept" because of `Request.keep_history`. "found" is the result of a search alone."""


class ErasedObject(msgspec.Struct, frozen=True):
    """An object with rows of the IDs, and its outcome.

    `rows_found` is -1 if the rows cannot be counted (bounds in metadata). `new` are the objects with its other rows.
    An object that is `left` has a `reason`: a clause about the object, with the date of its expiry if known.
    `versions_deleted` is the number of older versions of the object that were also deleted.
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
    """A request to erase the rows with one of the IDs in `column`, a name or the dotted path of a field.

    `id` names the request and its folder in the ledger; an identical request that resumes has the same ID.
    With `keep_history`, snapshots of that many days are kept.
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
    """The type of the column in each table that was searched so far."""

    mask: Mask | None = None
    """Masks IDs in user-facing output. Targets add the names of their partition fields."""

    redirected_from: str | None = None
    """The column whose values were redirected to this one because of their type. IDs that this column's type cannot
    represent are skipped."""

    searched: list[Ids] = field(default_factory=list)
    """The IDs as values of each type that was searched."""

    _ids: dict[pa.DataType, Ids] = field(default_factory=dict)

    def ids(self, type_: pa.DataType, table: TableName) -> Ids:
        """Return the IDs as values of a table's column of this type. Raises ConfigError."""
        self.types.setdefault(table, type_)
        if type_ not in self._ids:
            typed = self.file.typed if self.redirected_from is None else self.file.possible
            self._ids[type_] = typed(type_, self.column)
            self.searched.append(self._ids[type_])
        return self._ids[type_]

    def of(self, name: str) -> str:
        """Return the display name of a target, with the column if it is not the command line's."""
        return name if self.redirected_from is None else f"{name}, column {self.column}"

    def redirected_to(self, column: str) -> Request:
        """Return the request for a column to which values of this request's column were redirected."""
        return replace(self, column=column, redirected_from=self.column, types={}, _ids={})


@dataclass(slots=True)
class ErasureStats:
    """Statistics of a target besides its objects."""

    snapshots_expired: int = 0
    objects: int = 0
    objects_read: int = 0
    """Number of objects whose column was read. Bounds and partitions exclude the others."""
    distinct_rows: int | None = None
    """Number of distinct rows among the erased rows; None if unknown."""
    notes: list[str] = field(default_factory=list)
    """Sentences about skipped objects, with the reason."""

    def note(self, text: str) -> None:
        """Add a note unless it exists."""
        if text not in self.notes:
            self.notes.append(text)


class ErasureTarget(Protocol):
    """A table, or a folder of objects of one kind, that may have rows of the IDs."""

    @property
    def name(self) -> str:
        """Return the name in the report, such as "Iceberg table shop.orders"."""

    @property
    def figures(self) -> ErasureStats:
        """Return the statistics so far."""

    def require(self) -> None:
        """Raise ConnectorError if rows cannot be erased here. Changes nothing."""

    def find(self) -> Iterator[ErasedObject]:
        """Yield each object that has rows of the IDs now, as found or kept. Changes nothing."""

    def erase(self) -> Iterator[ErasedObject]:
        """Erase the rows; yield each object that had rows, once its outcome is final.

        Idempotent: detects the present objects and the results of an earlier attempt, which may have been killed at any
        point.
        """
