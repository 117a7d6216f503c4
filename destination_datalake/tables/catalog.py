"""The interface of the configured catalog, which syncs, `check` and `maintain` use.

Each kind of catalog (Glue or Iceberg REST) has one class that implements the interface, and `catalogs.py` chooses the
class. The code for Hive tables calls Glue directly, because this connector creates them only in Glue.
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
    """A database in a catalog's listing (in Iceberg: a namespace).

    `created` is the database's creation time, or None if the catalog does not report one.
    """

    name: str
    is_created_by_connector: bool
    created: datetime | None


class ListedTable(NamedTuple):
    """A table in a catalog's listing. The description has Glue's format (Glue API: Table) for every kind of catalog.

    For an Iceberg table, `Parameters` contains the Iceberg properties, `table_type` and `metadata_location`.
    """

    database: str
    glue_table: TableTypeDef


def is_iceberg(glue_table: Mapping[str, Any]) -> bool:
    """Return whether a table in Glue's format is an Iceberg table.

    The comparison ignores the case of the parameter `table_type`, because some engines write `ICEBERG` and others
    `iceberg`.
    """
    return str(glue_table.get("Parameters", {}).get("table_type", "")).upper() == "ICEBERG"


class TableCatalog(Protocol):
    """The configured catalog. Also applies the configured Lake Formation permissions to databases.

    Thread-safe. Every method may raise errors from the catalog's client library.
    """

    @property
    def governance(self) -> Governance:
        """Applies the configured Lake Formation permissions to tables."""

    @property
    def compares_metadata(self) -> bool:
        """Whether a commit fails after any change of the table's metadata since the commit was planned.

        If False, a commit fails only if another writer's change violates the commit's requirements (Iceberg REST
        specification: TableRequirement).
        """

    def pyiceberg(self) -> Catalog:
        """Return a PyIceberg catalog for one commit to one table.

        Its `commit_table` raises CommitFailedException or ConnectorError only if the commit has no effect, now or
        later. Callers then delete the files of the commit. After any other exception, the commit may have taken effect.
        """

    def access_of(self, table: TableName) -> AwsAccess:
        """Return the S3 access for reading and writing the table's files."""

    def ensure(self, database: str) -> None:
        """Create the database if it does not exist, and apply the configured Lake Formation permissions to it.

        Only the first call for each database sends requests.
        """

    def govern(self, database: str) -> None:
        """Apply the configured Lake Formation permissions to an existing database, once per database.

        Raises ConnectorError.
        """

    def find(self, table: TableName) -> TableTypeDef | None:
        """Return a table in Glue's format, or None if the table or its database does not exist."""

    def databases(self) -> Iterator[ListedDatabase]:
        """Yield all databases that the catalog shows to the connector's AWS or REST identity."""

    def tables(self, database: str) -> Iterator[ListedTable]:
        """Yield all tables of a database that the catalog shows to the connector's AWS or REST identity."""


# `check` reads at most this many databases and tables, because a user waits for its result.
_MAX_DATABASES_LISTED = 1_000
_MAX_DATABASES_READ = 50
_MAX_TABLES_READ = 2_000


def list_tables(catalog: TableCatalog, database: str) -> list[ListedTable]:
    """Return the tables of `database`, followed by those of the other databases that this connector created.

    The other databases are sorted from the newest to the oldest. The list ends after 2,000 tables, or when the catalog
    denies a request about another database. Raises the catalog's errors for requests about `database`.
    """
    return list(
        islice(chain(catalog.tables(database), _tables_of_other_databases(catalog, database)), _MAX_TABLES_READ)
    )


def _tables_of_other_databases(catalog: TableCatalog, database: str) -> Iterator[ListedTable]:
    """Yield the tables of the other databases that this connector created, at most 50 databases.

    If the catalog denies a request, stop without an error, because only warnings depend on these tables.
    """
    try:
        for created_database in _created_databases(catalog)[:_MAX_DATABASES_READ]:
            if created_database != database:
                yield from catalog.tables(created_database)
    except Exception as error:
        failure = explain(error, doing="list tables in databases other than", resource=database)
        # An error without an explanation is a defect and must not be hidden.
        if failure is None:
            raise
        _logger.info("%s The check continues without the tables of these databases.", failure.message)


def _created_databases(catalog: TableCatalog) -> list[str]:
    """Return the databases that this connector created, the newest first.

    The function reads only the first 1,000 databases of the catalog's listing.
    """
    databases = [
        database for database in islice(catalog.databases(), _MAX_DATABASES_LISTED) if database.is_created_by_connector
    ]
    databases.sort(key=lambda database: database.created or _LONG_AGO, reverse=True)
    return [database.name for database in databases]


_LONG_AGO = datetime.min.replace(tzinfo=UTC)
