"""Streams that other options than the present ones gave other tables or columns.

Every table says which stream it was made for (see `holding`). Where the options would now put that stream elsewhere, a
sync begins a new table and the old one stays: somebody should know before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Self

from destination_datalake.aws.errors import explain
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.schema.names import LONGEST, METADATA_NAMES
from destination_datalake.tables.glue.database import DESCRIPTION
from destination_datalake.tables.location import Kind, elsewhere
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import TableTypeDef

_logger = logging.getLogger(__name__)

# Somebody is waiting: so much is looked at and no more. Glue answers with a hundred at a time.
_DATABASES_LISTED = 1_000
_DATABASES_READ = 50
_TABLES_READ = 2_000
_PAGE = 100


@dataclass(frozen=True, slots=True)
class KnownTable:
    """A table that says what it holds; `columns` are pairs of a column's name and the source's name of it."""

    name: TableName
    holding: TableOwner
    columns: tuple[tuple[str, str], ...]
    kind: Kind
    location: str

    def __str__(self) -> str:
        return f"table {self.name} ({self.kind}) at {self.location} holds stream {self.holding.stream}"

    @classmethod
    def of(cls, database: str, table: TableTypeDef) -> Self | None:
        """Read it from the catalog's entry; None for a table that does not say what it holds."""
        holding = TableOwner.of(table.get("Parameters", {}))
        if holding is None:
            return None
        columns = table.get("StorageDescriptor", {}).get("Columns", [])
        named = tuple((column["Name"], column.get("Comment") or column["Name"]) for column in columns)
        kind: Kind = "Iceberg" if table.get("Parameters", {}).get("table_type", "").upper() == "ICEBERG" else "Hive"
        location = table.get("StorageDescriptor", {}).get("Location", "")
        return cls(TableName(database, table["Name"]), holding, named, kind, location)


@dataclass(frozen=True, slots=True)
class MovedStream:
    """A stream that has a table and would get another one, which may hold another stream's rows."""

    stream: StreamId
    had: TableName
    gets: TableName
    met: StreamId | None

    def __str__(self) -> str:
        move = f"stream {self.stream} was written to table {self.had} and would now be written to {self.gets}"
        return f"{move}, which holds stream {self.met}" if self.met else move


@dataclass(frozen=True, slots=True)
class RenamedColumns:
    """Columns of a stream's table that would get other names; pairs of the name that each has and the one it gets."""

    stream: StreamId
    table: TableName
    columns: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        had, gets = self.columns[0]
        more = f" and {len(self.columns) - 1} more would change too" if len(self.columns) > 1 else ""
        return f"column {had} of table {self.table} (stream {self.stream}) would now be {gets}{more}"


def strays(tables: Sequence[KnownTable], naming: TableNaming, within: str) -> Iterator[KnownTable]:
    """Tables that their streams would be written to, and that lie outside the folder `within`.

    Only in the database of streams without a namespace, which is the options' own. One of a namespace may be another
    connection's, as long as no sync brings a stream of it.
    """
    return (table for table in _own(tables, naming) if elsewhere(table.location, within) is not None)


def at_home(tables: Sequence[KnownTable], naming: TableNaming, within: str) -> bool:
    """Whether any table that its stream would be written to lies inside the folder `within`.

    Where these options have tables of their own, strays can be another connection's: two that differ in bucket or
    prefix may share a database.
    """
    return any(elsewhere(table.location, within) is None for table in _own(tables, naming))


def of_another_kind(tables: Sequence[KnownTable], naming: TableNaming, kind: Kind) -> Iterator[KnownTable]:
    """Tables that their streams would be written to, in the same database, if they were of this kind."""
    return (table for table in _own(tables, naming) if table.kind != kind)


def _own(tables: Sequence[KnownTable], naming: TableNaming) -> Iterator[KnownTable]:
    for table in tables:
        if table.name.database == naming.database and naming.table_of(table.holding.stream) == table.name:
            yield table


def moves(tables: Sequence[KnownTable], naming: TableNaming) -> Iterator[MovedStream | RenamedColumns]:
    """What `naming` puts elsewhere than it is, and that is not there already.

    Where `naming` has made tables, those that it has not made are another connection's: nothing is said of them. With
    streams that have a namespace, only such tables show that.
    """
    there = {table.name: table.holding.stream for table in tables}
    in_use = {table.holding.stream.namespace is None for table in tables if _made_by(naming, table)}
    for table in tables:
        stream = table.holding.stream
        if (stream.namespace is None) in in_use:
            continue
        target = naming.table_of(stream)
        if target != table.name:
            if there.get(target) != stream:
                yield MovedStream(stream, table.name, target, there.get(target))
        elif renamed := _renamed(table, naming):
            yield RenamedColumns(stream, table.name, renamed)


def _made_by(naming: TableNaming, table: KnownTable) -> bool:
    """Whether the table is called, and its columns were, as `naming` has it."""
    return table.holding.naming == naming.naming and naming.table_of(table.holding.stream) == table.name


def known_tables(glue: GlueClient, database: str) -> list[KnownTable]:
    """The tables that say what they hold, wherever they lie.

    Looked for in `database` and, as far as Glue permits it, in the latest of those that this connector has created,
    among the first thousands of tables. Raises what Glue raises about `database`.
    """
    entries = chain(_entries(glue, database), _entries_elsewhere(glue, database))
    read = (KnownTable.of(each, entry) for each, entry in islice(entries, _TABLES_READ))
    return [table for table in read if table is not None]


def _renamed(table: KnownTable, naming: TableNaming) -> tuple[tuple[str, str], ...]:
    """Columns that are called as the table's naming has it, and not as the present one. Those with a suffix are not."""
    before, now = table.holding.naming, naming.naming
    if before == now:
        return ()
    taken = {name for name, _ in table.columns}
    own = [(name, source) for name, source in table.columns if name not in METADATA_NAMES and _is_whole(source)]
    targets = ((name, now.identifier(source)) for name, source in own if before.identifier(source) == name)
    return tuple((name, target) for name, target in targets if target not in taken)


def _is_whole(source: str) -> bool:
    """Whether a comment can be all of the name that it is made from."""
    return len(source.encode()) < LONGEST


def _our_databases(glue: GlueClient) -> list[str]:
    """The databases that this connector has created, the latest first."""
    pages = glue.get_paginator("get_databases").paginate(PaginationConfig={"PageSize": _PAGE})
    listed = islice(chain.from_iterable(page["DatabaseList"] for page in pages), _DATABASES_LISTED)
    ours = [database for database in listed if database.get("Description") == DESCRIPTION]
    ours.sort(key=lambda database: database["CreateTime"], reverse=True)
    return [database["Name"] for database in ours]


def _entries(glue: GlueClient, database: str) -> Iterator[tuple[str, TableTypeDef]]:
    pages = glue.get_paginator("get_tables").paginate(DatabaseName=database, PaginationConfig={"PageSize": _PAGE})
    return ((database, table) for page in pages for table in page["TableList"])


def _entries_elsewhere(glue: GlueClient, database: str) -> Iterator[tuple[str, TableTypeDef]]:
    """Entries of our other databases. Only notes come of them, so where Glue refuses to say more, they end."""
    try:
        for other in _our_databases(glue)[:_DATABASES_READ]:
            if other != database:
                yield from _entries(glue, other)
    except Exception as error:
        failure = explain(error, doing="look for earlier tables beside those of", resource=database)
        if failure is None:
            raise
        _logger.info("%s Only a warning would have come of it.", failure.message)
