"""The Glue Data Catalog as the catalog of a configuration's tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from destination_datalake.tables.catalog import ListedDatabase, ListedTable

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import TableTypeDef
    from pyiceberg.catalog import Catalog

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.lake_formation.governance import Governance
    from destination_datalake.tables.table import TableName

DATABASE_DESCRIPTION = "Created by destination-datalake"
"""The description of databases created by this connector, by which it recognises them."""

_PAGE = 100
"""The most that Glue returns at a time."""


class GlueTableCatalog:
    """The `TableCatalog` of databases and tables in Glue."""

    compares_metadata = True

    def __init__(self, access: AwsAccess, governance: Governance) -> None:
        self.governance = governance
        self._access = access
        self._existing: set[str] = set()
        self._lock = threading.Lock()

    def pyiceberg(self) -> Catalog:
        """Return PyIceberg's catalog for one change of one table."""
        # PyIceberg takes a second to import, which Hive tables and `check` need not spend.
        from destination_datalake.tables.glue.compare_and_set import CompareAndSetGlueCatalog

        return CompareAndSetGlueCatalog(self._access)

    def access_of(self, table: TableName) -> AwsAccess:  # noqa: ARG002
        """Return the configuration's own access: Glue lends none."""
        return self._access

    def ensure(self, database: str) -> None:
        """Create the database if it does not exist, and govern it; asks Glue once for each name.

        Raises what Glue raises, and as `govern`.
        """
        with self._lock:
            if database not in self._existing:
                ensure_database(self._access.client("glue"), database, self.governance.database_settings)
                self._existing.add(database)
        self.govern(database)

    def govern(self, database: str) -> None:
        """Have an existing database governed, once for each name. Raises ConnectorError, or what AWS raises."""
        self.governance.govern_database(database, lambda: self._is_ours(database))

    def find(self, table: TableName) -> TableTypeDef | None:
        """Return the table, of whatever kind; None if there is none."""
        glue = self._access.client("glue")
        try:
            return glue.get_table(DatabaseName=table.database, Name=table.table)["Table"]
        except glue.exceptions.EntityNotFoundException:
            return None

    def databases(self) -> Iterator[ListedDatabase]:
        """Yield all databases that Glue shows."""
        pages = self._access.client("glue").get_paginator("get_databases")
        for page in pages.paginate(PaginationConfig={"PageSize": _PAGE}):
            for each in page["DatabaseList"]:
                ours = each.get("Description") == DATABASE_DESCRIPTION
                yield ListedDatabase(each["Name"], ours, each.get("CreateTime"))

    def tables(self, database: str) -> Iterator[ListedTable]:
        """Yield all tables of a database that Glue shows, of whatever kind."""
        pages = self._access.client("glue").get_paginator("get_tables")
        for page in pages.paginate(DatabaseName=database, PaginationConfig={"PageSize": _PAGE}):
            for each in page["TableList"]:
                yield ListedTable(database, each)

    def _is_ours(self, database: str) -> bool:
        found = self._access.client("glue").get_database(Name=database)["Database"]
        return found.get("Description") == DATABASE_DESCRIPTION


def ensure_database(glue: GlueClient, name: str, settings: Mapping[str, Any] | None = None) -> None:
    """Create the database if it does not exist. Idempotent, also if several syncs do it concurrently.

    `settings` are further members of DatabaseInput (Glue API) for a database that is created.
    """
    try:
        glue.get_database(Name=name)
    except glue.exceptions.EntityNotFoundException:
        try:
            glue.create_database(DatabaseInput={"Name": name, "Description": DATABASE_DESCRIPTION, **(settings or {})})  # type: ignore[typeddict-item]
        except glue.exceptions.AlreadyExistsException:
            return
