"""The step about an Iceberg REST catalog: the namespace, and the life of a table in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from destination_datalake.check.step import Findings
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.table import TableName

if TYPE_CHECKING:
    from destination_datalake.check.step import Trial


def try_rest_catalog(trial: Trial, findings: Findings) -> None:
    """Create the namespace unless it exists; create, change and drop a table in it. Leaves no table behind."""
    from destination_datalake.tables.rest.trial import TrialTable  # PyIceberg takes a second to import.

    catalog, database = catalog_of(trial.config, trial.access), trial.config.lakeformation_database_name
    name = TableName(database, f"airbyte_check_{trial.unique}")
    with findings.attempt("create or read namespace", database) as ensured:
        catalog.ensure(database)
    if not ensured.succeeded:
        return
    table = TrialTable(name, catalog)
    try:
        with findings.attempt("create table", str(name)) as created:
            assigned = trial.config.catalog.limits.assigns_locations
            table.create(None if assigned else trial.config.table_uri(*name))
        if created.succeeded:
            with findings.attempt("change table", str(name)):
                table.change()
    finally:
        # A table may exist although the answer to its creation was lost.
        with (findings if created.succeeded else Findings()).attempt("drop table", str(name)):
            table.drop()
