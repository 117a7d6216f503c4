"""Maintenance at the end of a sync, by the connector or by Glue's table optimizers.

A failure of maintenance never fails the sync. The connector does not change existing optimizers, not even disabled
ones, because a user may have configured them in Glue
(https://docs.aws.amazon.com/glue/latest/dg/table-optimizers.html).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

from destination_datalake.aws.access import catalog_id
from destination_datalake.aws.errors import explain
from destination_datalake.config.tables import ConnectorMaintenance, GlueOptimizers
from destination_datalake.errors import Failure
from destination_datalake.maintenance.report import StepReport
from destination_datalake.tables.naming import TableOwner
from destination_datalake.unforeseen import unforeseen

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.literals import TableOptimizerTypeType
    from mypy_boto3_glue.type_defs import TableOptimizerConfigurationTypeDef

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.catalog import TableCatalog
    from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)

SECONDS = 600
"""The time in seconds after which the connector starts no further maintenance, because the platform waits for the sync
to end."""

_MAX_CONCURRENT_TABLES = 4


def maintain_after_sync(
    config: Config,
    tables: Sequence[TableName],
    catalog: TableCatalog,
    access: AwsAccess,
    engine: Engine,
    stops: Callable[[], bool],
) -> None:
    """Maintain the tables of a sync as configured: turn on Glue's optimizers, or run the steps that are due.

    Skips Hive tables, and tables that another writer created. The connector's own steps stop when `stops` returns True,
    or after SECONDS. Logs failures, and never raises them.
    """
    options = config.maintenance
    if not tables or options.mode == "none":
        return
    if config.table_type == "HIVE":
        _logger.info(
            "maintenance.mode %s has no effect, because table_type is HIVE, and the option applies only to Iceberg "
            "tables.",
            options.mode,
        )
        return
    try:
        owned = [table for table in tables if _is_owned(table, catalog)]
        for report in (
            Optimizers(options, access).turn_on(owned)
            if isinstance(options, GlueOptimizers)
            else _maintain(config, options, owned, catalog, engine, stops)
        ):
            if report.failure is not None:
                _logger.warning(
                    "%s Rows and states are safe. The next sync retries the maintenance.", report.failure.message
                )
            _logger.info(report.log_line())
    except Exception:
        _logger.warning(
            "Maintenance failed. Rows and states are safe. The next sync retries the maintenance.", exc_info=True
        )


def _is_owned(table: TableName, catalog: TableCatalog) -> bool:
    """Return whether this connector created the table. Return False if the table's owner is unknown.

    Returns True for a missing table, so that the maintenance steps report the missing table.
    """
    try:
        entry = catalog.find(table)
    except Exception:
        # Skip the table, because it may belong to another writer.
        _logger.warning(
            "Skipped the maintenance of table %s, because the owner of the table is unknown.", table, exc_info=True
        )
        return False
    if entry is None or TableOwner.load(entry.get("Parameters", {})) is not None:
        return True
    _logger.info("Skipped the maintenance of table %s, because a different writer created the table.", table)
    return False


def _maintain(
    config: Config,
    options: ConnectorMaintenance,
    tables: Sequence[TableName],
    catalog: TableCatalog,
    engine: Engine,
    stops: Callable[[], bool],
) -> Iterator[StepReport]:
    # These modules import PyIceberg, which takes a second unless the sync has already imported it.
    from destination_datalake.files.rewrite import compact
    from destination_datalake.maintenance.steps import Maintainer

    deadline = time.monotonic() + SECONDS
    maintainer = Maintainer(
        options,
        config.target_file_size_mb * 1024 * 1024,
        catalog,
        lambda tasks: engine.run(compact, tasks),
        lambda: time.monotonic() < deadline and not stops(),
    )
    with ThreadPoolExecutor(_MAX_CONCURRENT_TABLES, "maintenance") as pool:
        # `due` is a generator. Without `list`, its steps would run in this thread, one table after the other.
        for reports in pool.map(lambda table: list(maintainer.due(table)), tables):
            yield from reports


TYPES: Sequence[TableOptimizerTypeType] = ("compaction", "retention", "orphan_file_deletion")

ROLE_PERMISSIONS = ("ALTER", "DELETE", "DESCRIBE", "INSERT")
"""The permissions that the role of Glue's optimizers needs on tables that Lake Formation governs.

https://docs.aws.amazon.com/glue/latest/dg/optimization-prerequisites.html
"""

_BATCH_SIZE = 30
"""The number of optimizers per request. AWS does not document a limit."""

_MAX_AGE = "history.expire.max-snapshot-age-ms"
_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"


class Optimizers:
    """Turns on Glue's table optimizers: compaction, retention and orphan file deletion."""

    def __init__(self, options: GlueOptimizers, access: AwsAccess) -> None:
        self._options = options
        self._access = access

    def turn_on(self, tables: Sequence[TableName]) -> Iterator[StepReport]:
        """Create the missing optimizers of each table. Yield a report for each table with missing optimizers.

        If an optimizer cannot be created, the report contains the failure. If Glue does not return the existing
        optimizers, yields a single report with the failure, and creates nothing.
        """
        if not tables:
            return
        began = time.monotonic()
        try:
            catalog = catalog_id(self._access)
            missing = self._missing(catalog, tables)
        except Exception as error:
            yield StepReport(tables[0], "optimizers", "failed", failure=_failure(error, "the table optimizers"))
            return
        for table in tables:
            types = [type_ for type_ in TYPES if (table, type_) in missing]
            if types:
                yield self._turn_on(catalog, table, types, began)

    def _missing(
        self, catalog: str, tables: Sequence[TableName]
    ) -> frozenset[tuple[TableName, TableOptimizerTypeType]]:
        required = [(table, type_) for table in tables for type_ in TYPES]
        existing: set[tuple[str, str, str]] = set()
        for start in range(0, len(required), _BATCH_SIZE):
            response = self._glue.batch_get_table_optimizer(
                Entries=[
                    {"catalogId": catalog, "databaseName": table.database, "tableName": table.table, "type": type_}
                    for table, type_ in required[start : start + _BATCH_SIZE]
                ]
            )
            # If a response omits an existing optimizer, `_create` handles AlreadyExistsException.
            existing |= {
                (entry["databaseName"], entry["tableName"], entry["tableOptimizer"]["type"])
                for entry in response.get("TableOptimizers", [])
            }
        return frozenset((table, type_) for table, type_ in required if (*table, type_) not in existing)

    def _turn_on(
        self, catalog: str, table: TableName, types: Sequence[TableOptimizerTypeType], began: float
    ) -> StepReport:
        created = []
        try:
            entry = self._glue.get_table(DatabaseName=table.database, Name=table.table)["Table"]
            for type_ in types:
                configuration = configuration_of(type_, self._options, entry.get("Parameters", {}))
                if self._create(catalog, table, type_, configuration):
                    created.append(type_)
        except Exception as error:
            failure = _failure(error, f"the table optimizers of {table}")
            return StepReport(table, "optimizers", "failed", failure=failure, seconds=time.monotonic() - began)
        outcome = (
            f"turned on Glue's optimizers {', '.join(created)}"
            if created
            else "Glue's optimizers are already turned on"
        )
        figures = {"optimizers": len(created)}
        return StepReport(table, "optimizers", outcome, figures, seconds=time.monotonic() - began)

    def _create(
        self,
        catalog: str,
        table: TableName,
        type_: TableOptimizerTypeType,
        configuration: TableOptimizerConfigurationTypeDef,
    ) -> bool:
        """Create an optimizer. Return False if the optimizer already exists."""
        try:
            self._glue.create_table_optimizer(
                CatalogId=catalog,
                DatabaseName=table.database,
                TableName=table.table,
                Type=type_,
                TableOptimizerConfiguration=configuration,
            )
        except self._glue.exceptions.AlreadyExistsException:
            return False
        return True

    @property
    def _glue(self) -> GlueClient:
        return self._access.client("glue")


def configuration_of(
    type_: TableOptimizerTypeType, options: GlueOptimizers, parameters: Mapping[str, str]
) -> TableOptimizerConfigurationTypeDef:
    """Return the TableOptimizerConfiguration (Glue API) of an optimizer.

    `parameters` contains the table's properties. If a property sets a retention rule, the result omits the
    corresponding option, so that Glue uses the property.
    """
    iceberg: dict[str, Any] = {}
    match type_:
        case "compaction":
            iceberg = {"compactionConfiguration": {"icebergConfiguration": {"strategy": "binpack"}}}
        case "retention":
            rules: dict[str, Any] = {"cleanExpiredFiles": True}
            if _MAX_AGE not in parameters:
                rules["snapshotRetentionPeriodInDays"] = options.snapshot_retention_days
            if _MIN_SNAPSHOTS not in parameters:
                rules["numberOfSnapshotsToRetain"] = options.min_snapshots_to_keep
            iceberg = {"retentionConfiguration": {"icebergConfiguration": rules}}
        case "orphan_file_deletion":
            days = {"orphanFileRetentionPeriodInDays": options.orphan_retention_days}
            iceberg = {"orphanFileDeletionConfiguration": {"icebergConfiguration": days}}
    configuration = {"roleArn": options.role_arn, "enabled": True, **iceberg}
    return cast("TableOptimizerConfigurationTypeDef", configuration)


def _failure(error: Exception, resource: str) -> Failure:
    return explain(error, doing="turn on", resource=resource) or unforeseen(f"Cannot turn on {resource}", error)
