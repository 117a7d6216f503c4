"""The tables that exist in the Glue Data Catalog, as far as `check` looks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from destination_datalake.aws.errors import explain
from destination_datalake.tables.glue.database import DATABASE_DESCRIPTION

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.type_defs import TableTypeDef

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
