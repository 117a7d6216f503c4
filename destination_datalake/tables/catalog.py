"""The catalog that a configuration's tables are in: all that syncs, `check` and `maintain` ask of it.

A kind of catalog is one class, chosen in `catalogs.py`. Hive tables are in the Glue Data Catalog alone, and ask Glue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from destination_datalake.aws.errors import explain

if TYPE_CHECKING:
    from mypy_boto3_glue.type_defs import TableTypeDef
    from pyiceberg.catalog import Catalog

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.lake_formation.governance import Governance
    from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)


class ListedDatabase(NamedTuple):
    """A database (Iceberg: namespace). `ours`: this connector has created it."""

    name: str
    ours: bool
    created: datetime | None


class ListedTable(NamedTuple):
    """A table, described as Glue does it (Glue API: Table), whichever catalog it is in.

    Of an Iceberg table, `Parameters` are its properties with `table_type` and `metadata_location`.
    """

    database: str
    glue_table: TableTypeDef


def is_iceberg(glue_table: Mapping[str, Any]) -> bool:
    """Whether a table, described as `ListedTable` has it, is an Iceberg table. Engines write the word in any case."""
    return str(glue_table.get("Parameters", {}).get("table_type", "")).upper() == "ICEBERG"


class TableCatalog(Protocol):
    """The catalog, governed as the options ask for. Thread-safe. Every method may raise what its library raises."""

    @property
    def governance(self) -> Governance:
        """What the options ask of Lake Formation."""

    @property
    def compares_metadata(self) -> bool:
        """Whether a commit succeeds only on the metadata that it was planned on.

        If not, it succeeds on all metadata for which its requirements hold.
        """

    def pyiceberg(self) -> Catalog:
        """Return PyIceberg's catalog for one change of one table: its tables commit through it.

        See `CompareAndSetGlueCatalog.commit_table` for what a commit raises.
        """

    def access_of(self, table: TableName) -> AwsAccess:
        """Return the access to S3 that the files of a table are written and read with."""

    def ensure(self, database: str) -> None:
        """Create the database if it does not exist, and `govern` it; asks once for each name."""

    def govern(self, database: str) -> None:
        """Have an existing database governed, once for each name. Raises ConnectorError."""

    def find(self, table: TableName) -> TableTypeDef | None:
        """Return a table as `ListedTable` has it; None if there is none, also if there is no such database."""

    def databases(self) -> Iterator[ListedDatabase]:
        """Yield all databases that may be seen."""

    def tables(self, database: str) -> Iterator[ListedTable]:
        """Yield all tables of a database that may be seen."""


# Limits of what `check` lists, because a user waits for the answer.
_DATABASES_LISTED = 1_000
_DATABASES_READ = 50
_TABLES_READ = 2_000


def list_tables(catalog: TableCatalog, database: str) -> list[ListedTable]:
    """Return the first two thousand tables, those in `database` first.

    The others are in the latest databases that this connector has created, as far as it has access to them. Raises what
    the catalog raises about `database`.
    """
    return list(islice(chain(catalog.tables(database), _tables_of_other_databases(catalog, database)), _TABLES_READ))


def _tables_of_other_databases(catalog: TableCatalog, database: str) -> Iterator[ListedTable]:
    """Yield the tables of our other databases. Ends where access is refused: only warnings depend on them."""
    try:
        for other in _our_databases(catalog)[:_DATABASES_READ]:
            if other != database:
                yield from catalog.tables(other)
    except Exception as error:
        failure = explain(error, doing="look for earlier tables beside those of", resource=database)
        if failure is None:
            raise
        _logger.info("%s Only a warning depends on it.", failure.message)


def _our_databases(catalog: TableCatalog) -> list[str]:
    """Return the databases that this connector has created, the latest first."""
    ours = [each for each in islice(catalog.databases(), _DATABASES_LISTED) if each.ours]
    ours.sort(key=lambda each: each.created or _LONG_AGO, reverse=True)
    return [each.name for each in ours]


_LONG_AGO = datetime.min.replace(tzinfo=UTC)
