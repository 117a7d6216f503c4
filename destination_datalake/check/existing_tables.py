"""The tables that exist, compared with the options: which of them would syncs leave behind or refuse to write to?

The answers are notes, not problems: such tables may belong to another connection with the same bucket or database.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, Self

from destination_datalake.aws.access import AwsAccess
from destination_datalake.aws.address import S3Address
from destination_datalake.check.catalog import drop_leftovers
from destination_datalake.check.step import Findings, Trial
from destination_datalake.check.storage import try_folder
from destination_datalake.config.options import Config
from destination_datalake.tables.catalog import ListedTable, is_iceberg, list_tables
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.location import TableKind, is_inside, not_in_s3, outside_warehouse
from destination_datalake.tables.migration import migration_note
from destination_datalake.tables.naming import TableNaming
from destination_datalake.tables.ownership import OwnedTable, relocations, tables_in_use
from destination_datalake.tables.s3_data_lake import CONNECTOR, is_of_s3_data_lake, misfits
from destination_datalake.tables.table import cannot_write

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef

_logger = logging.getLogger(__name__)

_SHOWN = 10
_LOGGED = 100
_BUCKETS_TRIED = 5
_METADATA_READ = 50
_SEE = "docs/operating/migrating.md tells how to continue tables of other connectors"


def try_existing_tables(trial: Trial, findings: Findings) -> None:
    """List the tables; note what the options do not fit, refuse what no sync could write to, tidy up after checks."""
    config = trial.config
    existing = ExistingTables.find(config, trial.access)
    # If some tables are inside bucket_prefix, those outside may be another connection's: a note, not a problem.
    if config.follow_table_location or not existing.any_inside():
        try_outside(trial, findings, existing.outside())
    if (inherited := existing.inherited()) is not None:
        # Options that choose tables may be another connection's, with the same database. Without, they are that
        # connector's own, and a sync that leaves one of its tables behind is refused.
        (findings.warn if config.has_table_options else findings.fail)(inherited)
    if not findings.failures:
        for note in chain(existing.notes(), incompatible_tables_notes(existing.listed, config, trial.access)):
            findings.warn(note, logging.INFO)
    drop_leftovers(trial.access.client("glue"), existing.listed)


def try_outside(trial: Trial, findings: Findings, outside: Sequence[OwnedTable]) -> None:
    """Refuse tables outside bucket_prefix, or try their buckets if follow_table_location is set."""
    if trial.config.follow_table_location:
        in_s3 = [table.location for table in outside if not_in_s3(table.location) is None]
        folders = {(address := S3Address.parse(location)).bucket: address for location in in_s3}
        if findings.remedies is not None:
            findings.remedies = findings.remedies.with_folders(folders.values())
        for folder in islice(folders.values(), _BUCKETS_TRIED):
            try_folder(trial, findings, folder)
        return
    warehouse = trial.config.uri("")
    for table in outside[:_SHOWN]:
        if (problem := outside_warehouse(table.location, warehouse)) is not None:
            findings.fail(cannot_write(table.owner.stream, table.name, problem))
    if len(outside) > _SHOWN:
        findings.fail(f"And {len(outside) - _SHOWN} more tables like these.")


def incompatible_tables_notes(listed: Sequence[ListedTable], config: Config, access: AwsAccess) -> Iterator[str]:
    """Yield which Iceberg tables of the options' database some sync could not write to, and why.

    The latest fifty are looked at. Any of them can be a stream's: those of other engines record no owner.
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
    refused = [f"{each.table}: {each.problem}" for each in inspected if each.problem is not None]
    if refused:
        yield (
            f"A sync would refuse to write to tables of database {config.lakeformation_database_name}: "
            f"{_listed(refused)}. If no stream is to be written to them, no action is needed."
        )
    told = [f"{each.table}: {'; '.join(each.notes)}" for each in inspected if each.notes]
    if told:
        yield f"Of some tables a sync depends on more: {_listed(told)}. {_SEE}."


@dataclass(frozen=True, slots=True)
class ExistingTables:
    """The tables that Glue lists, and those among them that record their owners."""

    config: Config
    listed: Sequence[ListedTable]
    owned: Sequence[OwnedTable]

    @classmethod
    def find(cls, config: Config, access: AwsAccess) -> Self:
        """List the tables, and log those that record their owners. None if the identity may not list tables."""
        database, optional = config.lakeformation_database_name, Findings()
        listed: Sequence[ListedTable] = []
        with optional.attempt("look for earlier tables of", database):
            listed = list_tables(catalog_of(config, access), database)
        for failure in optional.failures:
            _logger.info("%s Only a warning depends on it.", failure.message)
        owned = [owned for each in listed if (owned := OwnedTable.of(each.database, each.glue_table)) is not None]
        for table in owned[:_LOGGED]:
            _logger.info("Found: %s.", table)
        if len(owned) > _LOGGED:
            _logger.info("Found: %d more tables.", len(owned) - _LOGGED)
        return cls(config, listed, owned)

    def any_inside(self) -> bool:
        """Whether any table of these options is below their bucket_prefix.

        If so, tables outside it can be another connection's: two that differ in bucket or prefix may share a database.
        """
        return any(is_inside(table.location, self._warehouse()) for table in self._in_use())

    def outside(self) -> Sequence[OwnedTable]:
        """Return the tables of these options that are not below their bucket_prefix."""
        return [table for table in self._in_use() if not is_inside(table.location, self._warehouse())]

    def notes(self) -> Iterator[str]:
        """Yield what the user should know of the tables."""
        notes = (self._relocations(), self._outside_beside_inside(), self._other_kinds(), self._s3_data_lake())
        yield from filter(None, notes)

    def inherited(self) -> str | None:
        """Say which tables of AWS Datalake, in the options' database, a sync would not continue."""
        return migration_note(self._of_database(), self.config)

    def _relocations(self) -> str | None:
        """Say which streams and columns the options would give other tables and names."""
        warehouse = self._warehouse()
        inside = [table for table in self.owned if is_inside(table.location, warehouse)]
        return _note(
            f"There are tables under {warehouse} that other options have named: ",
            list(relocations(inside, TableNaming.of(self.config))),
            "its next sync creates new tables and columns without the earlier records, and the existing ones get no "
            "more records. To continue those, set lakeformation_database_name, database_strategy, table_prefix and "
            "naming as they were. If the change is intended, refresh the streams whose earlier records are needed, and "
            "drop the old tables when they are no longer read.",
        )

    def _outside_beside_inside(self) -> str | None:
        """Say which tables are outside bucket_prefix while others are inside; following syncs write to all of them."""
        if self.config.follow_table_location or not self.any_inside():
            return None
        return _note(
            f"Some tables of database {self.config.lakeformation_database_name} are under {self._warehouse()}, and "
            "others are not: ",
            [f"{table.name} ({table.location}, stream {table.owner.stream})" for table in self.outside()],
            "its syncs refuse their streams: correct bucket_name and bucket_prefix, choose another table_prefix, or "
            "set follow_table_location to true.",
        )

    def _other_kinds(self) -> str | None:
        """Say which tables a sync would refuse because they are not of the kind that table_type asks for."""
        kind: TableKind = "Iceberg" if self.config.table_type == "ICEBERG" else "Hive"
        others = [table for table in self._in_use() if table.kind != kind]
        return _note(
            f"With table_type {self.config.table_type}, a sync would refuse to write to ",
            [f"{table.name} ({table.kind}, stream {table.owner.stream})" for table in others],
            "set table_type and format_type as they were, or choose another lakeformation_database_name or "
            "table_prefix.",
        )

    def _s3_data_lake(self) -> str | None:
        """Say which tables of S3 Data Lake, in the options' database, a sync would not continue."""
        reasons: dict[str, list[str]] = {}
        for table in self._of_database():
            for reason in misfits(table, self.config) if is_of_s3_data_lake(table) else ():
                reasons.setdefault(reason, []).append(f"{self.config.lakeformation_database_name}.{table['Name']}")
        if not reasons:
            return None
        found = [f"{_listed(tables, ', ')}: {reason}" for reason, tables in reasons.items()]
        return (
            f"{CONNECTOR} has left tables that the options do not continue as they are: {_listed(found)}. If "
            f"they belong to another connection, no action is needed. {_SEE}."
        )

    def _of_database(self) -> Sequence[TableTypeDef]:
        database = self.config.lakeformation_database_name
        return [each.glue_table for each in self.listed if each.database == database]

    def _in_use(self) -> Iterator[OwnedTable]:
        return tables_in_use(self.owned, TableNaming.of(self.config))

    def _warehouse(self) -> str:
        return self.config.uri("")


def _note(what: str, found: Sequence[str], if_ours: str) -> str | None:
    """Return a note of what was found, and of what to do about it if it is this connection's; None if nothing was."""
    if not found:
        return None
    return (
        f"{what}{_listed(found)}. If another connection writes to them, no action is needed. If they belong to "
        f"this connection, {if_ours}"
    )


def _listed(texts: Sequence[str], separator: str = "; ") -> str:
    """Return the first ten texts, and how many more there are."""
    more = [f"and {len(texts) - _SHOWN} more like these"] if len(texts) > _SHOWN else []
    return separator.join([*texts[:_SHOWN], *more])
