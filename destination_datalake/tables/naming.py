"""The names of databases and tables that streams are written to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from destination_datalake.config.catalog import NO_LIMITS, CatalogLimits
from destination_datalake.config.tables import REPORTS_TABLE
from destination_datalake.errors import ConfigError
from destination_datalake.protocol.catalog import Stream, StreamId
from destination_datalake.rejects.ledger import REJECTS_TABLE
from destination_datalake.schema.names import AWS_DATALAKE, PRESERVE, SNAKE_CASE, SNAKE_CASE_NUMBERS, Naming, bounded
from destination_datalake.tables.location import GENERATIONS_SUFFIX
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.config.tables import DatabaseStrategy

_NAMINGS: Mapping[tuple[str, bool], Naming] = {
    ("snake_case", False): SNAKE_CASE,
    ("snake_case", True): SNAKE_CASE_NUMBERS,
    ("preserve", False): PRESERVE,
    ("aws_datalake", False): AWS_DATALAKE,
}
"""The naming of each `naming.style` and `naming.split_numbers`."""


REPLAY_SUFFIX = "__replay"
"""Ends the name of a table that is made from the archive of another one."""

REBUILD_SUFFIX = "__rebuild"
"""Ends the name of one that then takes the place of the other."""


@dataclass(frozen=True, slots=True)
class TableNaming:
    """The options that choose the names of databases and tables."""

    database: str
    strategy: DatabaseStrategy
    table_prefix: str
    naming: Naming
    limits: CatalogLimits = NO_LIMITS

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return the naming that the options configure."""
        naming = _NAMINGS[config.naming.style, config.naming.split_numbers]
        return cls(
            config.lakeformation_database_name,
            config.database_strategy,
            config.table_prefix,
            naming,
            config.catalog.limits,
        )

    def table_of(self, stream: StreamId) -> TableName:
        """Return the stream's table. Its database is the namespace; without one, or if all go to one, `database`."""
        namespace = stream.namespace if self.strategy == "namespace" else None
        database = self.naming.database(namespace) if namespace else self.database
        table = bounded(f"{self.table_prefix}{self.naming.identifier(stream.name)}", stream.name)
        return TableName(database, table)

    def candidates(self, stream: str) -> Mapping[TableName, StreamId]:
        """Return the tables that a stream of that name may have, and which stream then: any dot may end a namespace."""
        parts = stream.split(".")
        streams = [StreamId(".".join(parts[:number]) or None, ".".join(parts[number:])) for number in range(len(parts))]
        return {self.table_of(each): each for each in streams}

    def tables_of(self, streams: Sequence[Stream]) -> Mapping[StreamId, TableName]:
        """Return every stream's table.

        Raises ConfigError if two streams have the same table, or if a table's name is reserved by the
        connector, or is none that the catalog takes.
        """
        names = {stream.id: self.table_of(stream.id) for stream in streams}
        for stream, name in names.items():
            if (use := self._reserved_for(name)) is not None:
                raise ConfigError(
                    f"Stream {stream} would be written to table {name}, which is {use}. Set table_prefix, or rename "
                    "the stream with a stream prefix in the connection's settings."
                )
            for part, remedy in (
                (name.database, "Set database_strategy to single, or choose another lakeformation_database_name."),
                (
                    name.table,
                    "Set table_prefix, or rename the stream with a stream prefix in the connection's settings.",
                ),
            ):
                if not self.limits.is_valid_name(part):
                    raise ConfigError(
                        f"Stream {stream} would be written to table {name}, and the catalog takes no name {part}: "
                        f"names are of {self.limits.name_in_words}. {remedy}"
                    )
        owners: dict[TableName, StreamId] = {}
        for stream, name in names.items():
            other = owners.setdefault(name, stream)
            if other is not stream:
                raise ConfigError(_collision(self.strategy, other, stream, name))
        return names

    def _reserved_for(self, name: TableName) -> str | None:
        """Return the connector's own table or folder that has the name; None if it is free for a stream."""
        if name == (self.database, REJECTS_TABLE):
            return "the table of rejects"
        if name == (self.database, REPORTS_TABLE):
            return "the table of reports"
        if name.table.endswith((REPLAY_SUFFIX, REBUILD_SUFFIX)):
            return "a name that the command `replay` gives to tables"
        table, suffix, rest = name.table.rpartition(GENERATIONS_SUFFIX)
        if table and suffix and not rest:
            return f"the folder in which table {TableName(name.database, table)} keeps its generations"
        return None


def _collision(strategy: DatabaseStrategy, one: StreamId, other: StreamId, name: TableName) -> str:
    both = f"Streams {one} and {other} would both be written to table {name}: "
    if strategy == "single" and one.namespace != other.namespace:
        return (
            f"{both}database_strategy single ignores their namespaces. Set database_strategy to namespace, "
            "rename one with a stream prefix in the connection's settings, or sync them in two connections with "
            "different table_prefix."
        )
    return (
        f"{both}their names differ only in characters that table names do not distinguish. Rename one with a stream "
        "prefix or another namespace in the connection's settings, or sync them in two connections with different "
        "databases or table_prefix."
    )
