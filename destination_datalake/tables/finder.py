"""Which tables of the catalog are a configuration's: by the stream that each was created for, and where it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from destination_datalake.aws.errors import explain
from destination_datalake.errors import ConfigError
from destination_datalake.tables.catalog import ListedTable, is_iceberg
from destination_datalake.tables.location import is_inside
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.config.options import Config
    from destination_datalake.tables.catalog import TableCatalog


@dataclass(slots=True)
class TableFinder:
    """Finds Iceberg tables, or all. `notes` says, in sentences, what was not looked at or left out."""

    config: Config
    catalog: TableCatalog
    notes: list[str] = field(default_factory=list)
    with_hive: bool = False

    def tables(self, streams: Sequence[str]) -> list[TableName]:
        """Return the tables of these streams, each "name" or "namespace.name"; without streams, all tables.

        A table is the configuration's if it was created for a stream that this configuration writes to it, and is where
        its options put tables. All tables are those in lakeformation_database_name and, if database_strategy is
        namespace, in the databases that this connector has created. Raises ConfigError for a stream without such a
        table, and what the catalog raises.
        """
        if not streams:
            return sorted(name for name, _ in self._ours(self._in_databases()))
        kind = "table" if self.with_hive else "Iceberg table"
        found: set[TableName] = set()
        for stream in dict.fromkeys(streams):
            ours = [name for name, owner in self._ours(self._of_stream(stream)) if str(owner.stream) == stream]
            if not ours:
                raise ConfigError(
                    f"--stream {stream}: no {kind} of this configuration was created for that stream. Name it "
                    f"as namespace.name, or as name if it has no namespace.{''.join(f' {note}' for note in self.notes)}"
                )
            found.update(ours)
        return sorted(found)

    def _ours(self, listed: Iterable[ListedTable]) -> Iterator[tuple[TableName, TableOwner]]:
        naming = TableNaming.of(self.config)
        for database, table in listed:
            parameters, name = table.get("Parameters", {}), TableName(database, table["Name"])
            owner = TableOwner.of(parameters)
            if owner is None or naming.table_of(owner.stream) != name:
                continue
            if not (self.with_hive or is_iceberg(table)):
                self.notes.append(f"Table {name} is a Hive table, which needs no maintenance.")
            elif not self._is_here(location := table.get("StorageDescriptor", {}).get("Location", "")):
                self.notes.append(f"Table {name} is at {location}, outside bucket_name and bucket_prefix.")
            else:
                yield name, owner

    def _is_here(self, location: str) -> bool:
        return self.config.follow_table_location or is_inside(location, self.config.uri(""))

    def _in_databases(self) -> Iterator[ListedTable]:
        for database in self._databases():
            try:
                listed = list(self.catalog.tables(database))
            except Exception as error:
                failure = explain(error, doing="list the tables of", resource=database)
                is_of_others = database != self.config.lakeformation_database_name
                if failure is None or failure.type != "config_error" or not is_of_others:
                    raise
                # Another connection, with another identity, may have created it.
                self.notes.append(f"{failure.message} Its tables were not looked at.")
                continue
            yield from listed

    def _databases(self) -> list[str]:
        own = self.config.lakeformation_database_name
        if self.config.database_strategy == "single":
            return [own]
        try:
            ours = {each.name for each in self.catalog.databases() if each.ours}
        except Exception as error:
            failure = explain(error, doing="list the databases of", resource="the Data Catalog")
            if failure is None:
                raise
            self.notes.append(f"{failure.message} Only {own} was looked at; name streams of others with --stream.")
            return [own]
        return [own, *sorted(ours - {own})]

    def _of_stream(self, stream: str) -> Iterator[ListedTable]:
        """Yield the tables that a stream of that name may have."""
        for name in TableNaming.of(self.config).candidates(stream):
            if (found := self.catalog.find(name)) is not None:
                yield ListedTable(name.database, found)
