"""The interface of the configured catalog, which syncs, `check` and `maintain` use.

One class implements the interface for each kind of catalog, and `catalogs.py` chooses the class. Hive tables exist only
in the Glue Data Catalog, so the code of Hive tables calls Glue directly.
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
    """A database in a catalog's listing. Iceberg calls it a namespace."""

    name: str
    is_created_by_connector: bool
    created: datetime | None


class ListedTable(NamedTuple):
    """A table in a catalog's listing. Every catalog returns it in Glue's format (Glue API: Table).

    The `Parameters` of an Iceberg table contain its Iceberg properties, and also `table_type` and `metadata_location`.
    """

    database: str
    glue_table: TableTypeDef


def is_iceberg(glue_table: Mapping[str, Any]) -> bool:
    """Return whether a table in Glue's format is an Iceberg table.

    `table_type` is compared case-insensitively, because engines write it in different cases.
    """
    return str(glue_table.get("Parameters", {}).get("table_type", "")).upper() == "ICEBERG"


class TableCatalog(Protocol):
    """The configured catalog, which also applies the configured Lake Formation governance to databases.

    Thread-safe. Every method may raise errors of the catalog's client library.
    """

    @property
    def governance(self) -> Governance:
        """The configured governance of tables by Lake Formation."""

    @property
    def compares_metadata(self) -> bool:
        """Whether a commit fails if the table's metadata has changed in any way since the commit was planned.

        If False, a commit succeeds on any metadata that meets the commit's requirements.
        """

    def pyiceberg(self) -> Catalog:
        """Return a PyIceberg catalog through which one change of one table is committed.

        See `CompareAndSetGlueCatalog.commit_table` for the errors of a commit.
        """

    def access_of(self, table: TableName) -> AwsAccess:
        """Return the S3 access with which a table's files are written and read."""

    def ensure(self, database: str) -> None:
        """Create the database if it does not exist, and apply the configured governance to it.

        Calls the catalog only once for each database.
        """

    def govern(self, database: str) -> None:
        """Apply the configured governance to an existing database, once for each database. Raises ConnectorError."""

    def find(self, table: TableName) -> TableTypeDef | None:
        """Return a table in Glue's format, or None if the table or its database does not exist."""

    def databases(self) -> Iterator[ListedDatabase]:
        """Yield all visible databases."""

    def tables(self, database: str) -> Iterator[ListedTable]:
        """Yield all visible tables of a database."""


# Limits for `check`, because a user waits for its result.
_MAX_DATABASES_LISTED = 1_000
_MAX_DATABASES_READ = 50
_MAX_TABLES_READ = 2_000


def list_tables(catalog: TableCatalog, database: str) -> list[ListedTable]:
    """Return the tables in `database`, followed by tables in the other databases that this connector created.

    The other databases are ordered from the newest to the oldest. Databases that cannot be listed are skipped. At most
    2,000 tables are returned. Raises the catalog's errors about `database`.
    """
    return list(
        islice(chain(catalog.tables(database), _tables_of_other_databases(catalog, database)), _MAX_TABLES_READ)
    )


def _tables_of_other_databases(catalog: TableCatalog, database: str) -> Iterator[ListedTable]:
    """Yield the tables of the other databases that this connector created.

    Stop without an error if the catalog denies a request, because only warnings depend on these tables.
    """
    try:
        for other in _created_databases(catalog)[:_MAX_DATABASES_READ]:
            if other != database:
                yield from catalog.tables(other)
    except Exception as error:
        failure = explain(error, doing="look for earlier tables beside those of", resource=database)
        if failure is None:
            raise
        _logger.info("%s Only a warning depends on it.", failure.message)


def _created_databases(catalog: TableCatalog) -> list[str]:
    """Return the databases that this connector created, from the newest to the oldest."""
    databases = [
        database for database in islice(catalog.databases(), _MAX_DATABASES_LISTED) if database.is_created_by_connector
    ]
    databases.sort(key=lambda database: database.created or _LONG_AGO, reverse=True)
    return [database.name for database in databases]


_LONG_AGO = datetime.min.replace(tzinfo=UTC)
