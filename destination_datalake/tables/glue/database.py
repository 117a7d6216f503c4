"""Databases of the Glue Data Catalog, and the tables in them as far as `check` looks."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from destination_datalake.aws.errors import explain

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import TableTypeDef

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.lake_formation.governance import Governance

DATABASE_DESCRIPTION = "Created by destination-datalake"
"""The description of databases created by this connector, by which it recognises them."""


class Databases:
    """The databases of one sync's tables, governed as the options ask for. Thread-safe."""

    def __init__(self, access: AwsAccess, governance: Governance) -> None:
        self.governance = governance
        self._access = access
        self._existing: set[str] = set()

    def ensure(self, name: str) -> None:
        """Create the database if it does not exist, and govern it; asks Glue once for each name.

        Raises what Glue raises, and as `govern`.
        """
        if name not in self._existing:
            ensure_database(self._access.client("glue"), name, self.governance.database_settings)
            self._existing.add(name)
        self.govern(name)

    def govern(self, name: str) -> None:
        """Have an existing database governed, once for each name. Raises ConnectorError, or what AWS raises."""
        self.governance.govern_database(name, lambda: self._is_ours(name))

    def _is_ours(self, name: str) -> bool:
        found = self._access.client("glue").get_database(Name=name)["Database"]
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


_logger = logging.getLogger(__name__)

# Limits, because a user waits for the answer. Glue returns at most a hundred per page.
_DATABASES_LISTED = 1_000
_DATABASES_READ = 50
_TABLES_READ = 2_000
_PAGE = 100


class ListedTable(NamedTuple):
    """A table as Glue lists it."""

    database: str
    glue_table: TableTypeDef


def list_tables(glue: GlueClient, database: str) -> list[ListedTable]:
    """Return the first two thousand tables, those in `database` first.

    The others are in the latest databases that this connector has created, as far as Glue permits access to them.
    Raises what Glue raises about `database`.
    """
    tables = chain(_tables(glue, database), _tables_of_other_databases(glue, database))
    return list(islice(tables, _TABLES_READ))


def _tables(glue: GlueClient, database: str) -> Iterator[ListedTable]:
    pages = glue.get_paginator("get_tables").paginate(DatabaseName=database, PaginationConfig={"PageSize": _PAGE})
    return (ListedTable(database, table) for page in pages for table in page["TableList"])


def _tables_of_other_databases(glue: GlueClient, database: str) -> Iterator[ListedTable]:
    """Yield the tables of our other databases. Ends where Glue refuses access: only warnings depend on them."""
    try:
        for other in _our_databases(glue)[:_DATABASES_READ]:
            if other != database:
                yield from _tables(glue, other)
    except Exception as error:
        failure = explain(error, doing="look for earlier tables beside those of", resource=database)
        if failure is None:
            raise
        _logger.info("%s Only a warning depends on it.", failure.message)


def _our_databases(glue: GlueClient) -> list[str]:
    """Return the databases that this connector has created, the latest first."""
    pages = glue.get_paginator("get_databases").paginate(PaginationConfig={"PageSize": _PAGE})
    listed = islice(chain.from_iterable(page["DatabaseList"] for page in pages), _DATABASES_LISTED)
    ours = [database for database in listed if database.get("Description") == DATABASE_DESCRIPTION]
    ours.sort(key=lambda database: database["CreateTime"], reverse=True)
    return [database["Name"] for database in ours]
