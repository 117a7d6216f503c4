"""The Iceberg tables that a configuration writes to, found in the catalog by the stream that each was created for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from destination_datalake.aws.address import S3Address
from destination_datalake.aws.errors import explain
from destination_datalake.errors import ConfigError
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.tables.glue.database import DATABASE_DESCRIPTION
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import TableOwner
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import TableTypeDef

    from destination_datalake.config.options import Config


@dataclass(slots=True)
class TableFinder:
    """Finds tables. `notes` says, in sentences, what was not looked at or left out."""

    config: Config
    glue: GlueClient
    notes: list[str] = field(default_factory=list)

    def tables(self, streams: Sequence[str]) -> list[TableName]:
        """Return the tables of these streams, each "name" or "namespace.name"; without streams, all tables.

        A table is the configuration's if it was created for a stream that this configuration writes to it, and is where
        its options put tables. All tables are those in lakeformation_database_name and, if database_strategy is
        namespace, in the databases that this connector has created. Raises ConfigError for a stream without such a
        table, and what Glue raises.
        """
        if not streams:
            return sorted(name for name, _ in self._ours(self._in_databases()))
        found: set[TableName] = set()
        for stream in dict.fromkeys(streams):
            ours = [name for name, owner in self._ours(self._of_stream(stream)) if str(owner.stream) == stream]
            if not ours:
                raise ConfigError(
                    f"--stream {stream}: no Iceberg table of this configuration was created for that stream. Name it "
                    f"as namespace.name, or as name if it has no namespace.{''.join(f' {note}' for note in self.notes)}"
                )
            found.update(ours)
        return sorted(found)

    def _ours(self, listed: Iterable[tuple[str, TableTypeDef]]) -> Iterator[tuple[TableName, TableOwner]]:
        naming = TableNaming.of(self.config)
        for database, table in listed:
            parameters, name = table.get("Parameters", {}), TableName(database, table["Name"])
            owner = TableOwner.of(parameters)
            if owner is None or naming.table_of(owner.stream) != name:
                continue
            if parameters.get("table_type", "").upper() != "ICEBERG":
                self.notes.append(f"Table {name} is a Hive table, which needs no maintenance.")
            elif not self._is_here(location := table.get("StorageDescriptor", {}).get("Location", "")):
                self.notes.append(f"Table {name} is at {location}, outside bucket_name and bucket_prefix.")
            else:
                yield name, owner

    def _is_here(self, location: str) -> bool:
        if self.config.follow_table_location:
            return True
        try:
            address = S3Address.parse(location)
        except ValueError:
            return False
        folder = self.config.key()
        return address.bucket == self.config.bucket_name and (not folder or address.key.startswith(f"{folder}/"))

    def _in_databases(self) -> Iterator[tuple[str, TableTypeDef]]:
        for database in self._databases():
            pages = self.glue.get_paginator("get_tables").paginate(DatabaseName=database)
            try:
                listed = [table for page in pages for table in page["TableList"]]
            except Exception as error:
                failure = explain(error, doing="list the tables of", resource=database)
                is_of_others = database != self.config.lakeformation_database_name
                if failure is None or failure.type != "config_error" or not is_of_others:
                    raise
                # Another connection, with another identity, may have created it.
                self.notes.append(f"{failure.message} Its tables were not looked at.")
                continue
            yield from ((database, table) for table in listed)

    def _databases(self) -> list[str]:
        own = self.config.lakeformation_database_name
        if self.config.database_strategy == "single":
            return [own]
        try:
            pages = self.glue.get_paginator("get_databases").paginate()
            listed = [database for page in pages for database in page["DatabaseList"]]
        except Exception as error:
            failure = explain(error, doing="list the databases of", resource="the Data Catalog")
            if failure is None:
                raise
            self.notes.append(f"{failure.message} Only {own} was looked at; name streams of others with --stream.")
            return [own]
        ours = [each["Name"] for each in listed if each.get("Description") == DATABASE_DESCRIPTION]
        return [own, *sorted({*ours} - {own})]

    def _of_stream(self, stream: str) -> Iterator[tuple[str, TableTypeDef]]:
        """Yield the tables that a stream of that name may have: any dot may end its namespace."""
        naming, parts = TableNaming.of(self.config), stream.split(".")
        for number in range(len(parts)):
            namespace = ".".join(parts[:number]) or None
            name = naming.table_of(StreamId(namespace, ".".join(parts[number:])))
            try:
                yield name.database, self.glue.get_table(DatabaseName=name.database, Name=name.table)["Table"]
            except self.glue.exceptions.EntityNotFoundException:
                continue
