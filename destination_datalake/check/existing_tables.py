"""Compare existing tables with the options, and report tables that syncs would abandon or refuse to write.

Most findings are notes, which do not fail the check, because the tables may belong to another connection that uses the
same bucket or database.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Self

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.objects import S3Address
from destination_datalake.check.catalog import drop_leftovers
from destination_datalake.check.step import CheckContext, StepFindings
from destination_datalake.check.storage import try_folder
from destination_datalake.config.options import Config
from destination_datalake.tables.catalog import ListedTable, is_iceberg, list_tables
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.migration import migration_note
from destination_datalake.tables.naming import (
    OwnedTable,
    TableKind,
    TableNaming,
    is_inside,
    not_in_s3,
    outside_warehouse,
    relocations,
    tables_in_use,
)
from destination_datalake.tables.s3_data_lake import CONNECTOR, incompatible_options, is_of_s3_data_lake
from destination_datalake.tables.table import cannot_write

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef

_logger = logging.getLogger(__name__)

_SHOWN = 10
_LOGGED = 100
_BUCKETS_TRIED = 5
_METADATA_READ = 50
_SEE = "See docs/operating/migrating.md to continue tables of other connectors."


def try_existing_tables(context: CheckContext, findings: StepFindings) -> None:
    """Report existing tables that do not match the options. Drop temporary tables of interrupted checks.

    Adds failures only for tables outside bucket_prefix, and for tables of the destination AWS Datalake that syncs would
    abandon. Adds notes about all other differences.
    """
    config = context.config
    existing = ExistingTables.find(config, context.access)
    # If bucket_prefix contains any table, tables outside may belong to another connection. Only add notes about these.
    if config.follow_table_location or not existing.any_inside():
        try_outside(context, findings, existing.outside())
    if (inherited := existing.inherited()) is not None:
        # Without table options, the configuration was written for AWS Datalake, so syncs must not abandon its tables.
        # With table options, the tables may belong to another connection that uses the same database.
        (findings.warn if config.has_table_options else findings.fail)(inherited)
    if not findings.failures:
        for note in chain(existing.notes(), incompatible_tables_notes(existing.listed, config, context.access)):
            findings.warn(note, logging.INFO)
    drop_leftovers(context.access.client("glue"), existing.listed)


def try_outside(context: CheckContext, findings: StepFindings, outside: Sequence[OwnedTable]) -> None:
    """Add a failure for each table outside bucket_prefix.

    If follow_table_location is set, syncs may write to these tables. In this case, checks the permissions instead, in
    one folder of each bucket that contains such tables, for at most 5 buckets.
    """
    if context.config.follow_table_location:
        in_s3 = [table.location for table in outside if not_in_s3(table.location) is None]
        folders = {(address := S3Address.parse(location)).bucket: address for location in in_s3}
        if findings.remedies is not None:
            findings.remedies = findings.remedies.with_folders(folders.values())
        for folder in islice(folders.values(), _BUCKETS_TRIED):
            try_folder(context, findings, folder)
        return
    warehouse = context.config.uri("")
    for table in outside[:_SHOWN]:
        if (problem := outside_warehouse(table.location, warehouse)) is not None:
            findings.fail(cannot_write(table.owner.stream, table.name, problem))
    if len(outside) > _SHOWN:
        findings.fail(f"The same problem affects {len(outside) - _SHOWN} more tables.")


def incompatible_tables_notes(listed: Sequence[ListedTable], config: Config, access: AwsAccess) -> Iterator[str]:
    """Yield notes about Iceberg tables that syncs cannot write, or can write only under conditions.

    Reads the metadata of the 50 most recently updated tables in the configured database. Includes tables that other
    engines created, because a stream may write to such a table.
    """
    tables = [
        table
        for table in listed
        if table.database == config.lakeformation_database_name and is_iceberg(table.glue_table)
    ]
    if config.table_type != "ICEBERG" or not tables:
        return
    from destination_datalake.tables.iceberg.inspection import inspect_tables

    tables.sort(key=lambda table: str(table.glue_table.get("UpdateTime", "")), reverse=True)
    inspected = list(inspect_tables(tables[:_METADATA_READ], access))
    refused = [f"{result.table}: {result.problem}" for result in inspected if result.problem is not None]
    if refused:
        yield (
            f"Syncs cannot write to these tables of database {config.lakeformation_database_name}: "
            f"{_joined(refused)}. If no stream writes to these tables, no action is needed."
        )
    noted = [f"{result.table}: {'; '.join(result.notes)}" for result in inspected if result.notes]
    if noted:
        yield f"Syncs can write to these tables only under conditions: {_joined(noted)}. {_SEE}"


@dataclass(frozen=True, slots=True)
class ExistingTables:
    """The tables that exist in Glue.

    `listed` contains all tables. `owned` contains the tables whose properties record an owner, which is the stream that
    writes the table.
    """

    config: Config
    listed: Sequence[ListedTable]
    owned: Sequence[OwnedTable]

    @classmethod
    def find(cls, config: Config, access: AwsAccess) -> Self:
        """List the tables in Glue, and log the tables with a recorded owner.

        Returns an instance without tables if the caller may not list tables.
        """
        database, optional = config.lakeformation_database_name, StepFindings()
        listed: Sequence[ListedTable] = []
        with optional.attempt("list the tables of database", database):
            listed = list_tables(catalog_of(config, access), database)
        for failure in optional.failures:
            _logger.info(
                "%s Without this permission, the check cannot compare existing tables with the options.",
                failure.message,
            )
        owned = [
            owned for table in listed if (owned := OwnedTable.from_glue(table.database, table.glue_table)) is not None
        ]
        for table in owned[:_LOGGED]:
            _logger.info("Existing %s.", table)
        if len(owned) > _LOGGED:
            _logger.info("Found %d more tables.", len(owned) - _LOGGED)
        return cls(config, listed, owned)

    def any_inside(self) -> bool:
        """Return whether bucket_prefix contains any table to which syncs with these options would write.

        If so, tables outside bucket_prefix may belong to another connection with the same database, but with another
        bucket or prefix.
        """
        return any(is_inside(table.location, self._warehouse()) for table in self._in_use())

    def outside(self) -> Sequence[OwnedTable]:
        """Return the tables outside bucket_prefix to which syncs with these options would write."""
        return [table for table in self._in_use() if not is_inside(table.location, self._warehouse())]

    def notes(self) -> Iterator[str]:
        """Yield user-facing notes about existing tables that do not match the options.

        These are tables with another name, another location or another type, and tables of the destination S3 Data
        Lake.
        """
        notes = (self._relocations(), self._outside_beside_inside(), self._other_kinds(), self._s3_data_lake())
        yield from filter(None, notes)

    def inherited(self) -> str | None:
        """Return a note about tables of the destination AWS Datalake that syncs would abandon, or None."""
        return migration_note(self._of_database(), self.config)

    def _relocations(self) -> str | None:
        """Return a note about tables and columns whose names differ from those that the options result in, or None."""
        warehouse = self._warehouse()
        inside = [table for table in self.owned if is_inside(table.location, warehouse)]
        return _note(
            f"Some tables under {warehouse} have names that do not match the options: ",
            list(relocations(inside, TableNaming.from_config(self.config))),
            "the next sync creates new tables and columns without the earlier records, and no longer writes to the old "
            "tables and columns. To keep the old names, restore lakeformation_database_name, database_strategy, "
            "table_prefix and naming. If the change is intended, refresh the streams whose earlier records are needed, "
            "and drop the old tables when they are no longer read.",
        )

    def _outside_beside_inside(self) -> str | None:
        """Return a note about tables outside bucket_prefix, or None if there are no such tables.

        Also returns None if follow_table_location is set, or if bucket_prefix contains no tables. `try_outside` handles
        these two cases.
        """
        if self.config.follow_table_location or not self.any_inside():
            return None
        return _note(
            f"Some tables of database {self.config.lakeformation_database_name} are under {self._warehouse()}, but "
            "these tables are not: ",
            [f"{table.name} ({table.location}, stream {table.owner.stream})" for table in self.outside()],
            "syncs refuse to write their streams. Correct bucket_name and bucket_prefix, choose a different "
            "table_prefix, or set follow_table_location to true.",
        )

    def _other_kinds(self) -> str | None:
        """Return a note about tables that syncs would refuse to write because their type is not table_type, or None."""
        kind: TableKind = "Iceberg" if self.config.table_type == "ICEBERG" else "Hive"
        different = [table for table in self._in_use() if table.kind != kind]
        return _note(
            f"With table_type {self.config.table_type}, syncs refuse to write to these tables: ",
            [f"{table.name} ({table.kind}, stream {table.owner.stream})" for table in different],
            "restore table_type and format_type, or choose a different lakeformation_database_name or table_prefix.",
        )

    def _s3_data_lake(self) -> str | None:
        """Return a note about tables of the destination S3 Data Lake that syncs would abandon, or None."""
        reasons: dict[str, list[str]] = {}
        for table in self._of_database():
            for reason in incompatible_options(table, self.config) if is_of_s3_data_lake(table) else ():
                reasons.setdefault(reason, []).append(f"{self.config.lakeformation_database_name}.{table['Name']}")
        if not reasons:
            return None
        groups = [f"{_joined(tables, ', ')}: {reason}" for reason, tables in reasons.items()]
        return (
            f"{CONNECTOR} created tables that syncs with these options do not continue: {_joined(groups)}. If these "
            f"tables belong to a different connection, no action is needed. {_SEE}"
        )

    def _of_database(self) -> Sequence[TableTypeDef]:
        database = self.config.lakeformation_database_name
        return [table.glue_table for table in self.listed if table.database == database]

    def _in_use(self) -> Iterator[OwnedTable]:
        return tables_in_use(self.owned, TableNaming.from_config(self.config))

    def _warehouse(self) -> str:
        return self.config.uri("")


def _note(introduction: str, tables: Sequence[str], remedy: str) -> str | None:
    """Return a note about `tables`, or None if `tables` is empty.

    `remedy` is a clause about the consequences and the remedy if the tables belong to this connection.
    """
    if not tables:
        return None
    return (
        f"{introduction}{_joined(tables)}. If a different connection writes to these tables, no action is needed. If "
        f"they belong to this connection, {remedy}"
    )


def _joined(texts: Sequence[str], separator: str = "; ") -> str:
    """Join the first ten strings. If there are more, append the number of the others."""
    more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return separator.join([*texts[:_SHOWN], *more])
