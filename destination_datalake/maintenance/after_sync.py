"""Maintenance at the end of a sync, by the connector or by Glue's table optimizers. It never fails the sync.

An optimizer that exists is left as it is, a disabled one too: somebody wanted it so. So the options of a table whose
optimizers are on are changed in Glue (https://docs.aws.amazon.com/glue/latest/dg/table-optimizers.html).
"""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

from destination_datalake.aws.access import catalog_id
from destination_datalake.aws.errors import explain
from destination_datalake.config.tables import ConnectorMaintenance, GlueOptimizers
from destination_datalake.errors import Failure
from destination_datalake.maintenance.report import StepReport
from destination_datalake.tables.ownership import TableOwner

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
"""After this time nothing more is begun: the platform waits for the sync's end."""

_TABLES_AT_ONCE = 4


def maintain_after_sync(
    config: Config,
    tables: Sequence[TableName],
    catalog: TableCatalog,
    access: AwsAccess,
    engine: Engine,
    stops: Callable[[], bool],
) -> None:
    """Do what is due for these tables, as the options ask for, until `stops` returns true. Raises nothing."""
    options = config.maintenance
    if not tables or options.mode == "none":
        return
    if config.table_type == "HIVE":
        _logger.info("maintenance.mode %s is for Iceberg tables; Hive tables need none.", options.mode)
        return
    try:
        ours = [table for table in tables if _is_ours(table, catalog)]
        for report in (
            Optimizers(options, access).turn_on(ours)
            if isinstance(options, GlueOptimizers)
            else _maintained(config, options, ours, catalog, engine, stops)
        ):
            if report.failure is not None:
                _logger.warning("%s Rows and states are safe. The next sync tries again.", report.failure.message)
            _logger.info(report.log_line())
    except Exception:
        _logger.warning("Tables could not be maintained. Rows and states are safe.", exc_info=True)


def _is_ours(table: TableName, catalog: TableCatalog) -> bool:
    """Whether this connector has created the table; also if there is none any more, as the steps then say."""
    try:
        found = catalog.find(table)
    except Exception:
        # It may be of others, and the next requests may succeed.
        _logger.warning("Table %s is not maintained: it cannot be told who has created it.", table, exc_info=True)
        return False
    if found is None or TableOwner.of(found.get("Parameters", {})) is not None:
        return True
    _logger.info("Table %s was not created by this connector, which leaves its maintenance to others.", table)
    return False


def _maintained(
    config: Config,
    options: ConnectorMaintenance,
    tables: Sequence[TableName],
    catalog: TableCatalog,
    engine: Engine,
    stops: Callable[[], bool],
) -> Iterator[StepReport]:
    # PyIceberg takes a second to import; a sync of Iceberg tables has it already.
    from destination_datalake.files.compact import compact
    from destination_datalake.maintenance.steps import Maintainer

    deadline = time.monotonic() + SECONDS
    maintainer = Maintainer(
        options,
        config.target_file_size_mb * 1024 * 1024,
        catalog,
        lambda tasks: engine.run(compact, tasks),
        lambda: time.monotonic() < deadline and not stops(),
    )
    with ThreadPoolExecutor(_TABLES_AT_ONCE, "maintenance") as pool:
        for reports in pool.map(lambda table: list(maintainer.due(table)), tables):
            yield from reports


TYPES: Sequence[TableOptimizerTypeType] = ("compaction", "retention", "orphan_file_deletion")

ROLE_PERMISSIONS = ("ALTER", "DELETE", "DESCRIBE", "INSERT")
"""What the role needs on tables that Lake Formation governs.

https://docs.aws.amazon.com/glue/latest/dg/optimization-prerequisites.html
"""

_ASKED_AT_ONCE = 30
"""Optimizers in one request. AWS documents no limit."""

_MAX_AGE = "history.expire.max-snapshot-age-ms"
_MIN_SNAPSHOTS = "history.expire.min-snapshots-to-keep"


class Optimizers:
    """The optimizers of a configuration's tables."""

    def __init__(self, options: GlueOptimizers, access: AwsAccess) -> None:
        self._options = options
        self._access = access

    def turn_on(self, tables: Sequence[TableName]) -> Iterator[StepReport]:
        """Turn on what the tables lack; yield a report for each that lacked something, and for each failure."""
        if not tables:
            return
        began = time.monotonic()
        try:
            catalog = catalog_id(self._access)
            missing = self._missing(catalog, tables)
        except Exception as error:
            yield StepReport(tables[0], "optimizers", "failed", failure=_failure(error, "its table optimizers"))
            return
        for table in tables:
            types = [each for each in TYPES if (table, each) in missing]
            if types:
                yield self._turned_on(catalog, table, types, began)

    def _missing(
        self, catalog: str, tables: Sequence[TableName]
    ) -> frozenset[tuple[TableName, TableOptimizerTypeType]]:
        wanted = [(table, each) for table in tables for each in TYPES]
        existing: set[tuple[str, str, str]] = set()
        for start in range(0, len(wanted), _ASKED_AT_ONCE):
            answer = self._glue.batch_get_table_optimizer(
                Entries=[
                    {"catalogId": catalog, "databaseName": table.database, "tableName": table.table, "type": each}
                    for table, each in wanted[start : start + _ASKED_AT_ONCE]
                ]
            )
            # What it does not return is created, which AWS refuses if it exists after all.
            existing |= {
                (found["databaseName"], found["tableName"], found["tableOptimizer"]["type"])
                for found in answer.get("TableOptimizers", [])
            }
        return frozenset((table, each) for table, each in wanted if (*table, each) not in existing)

    def _turned_on(
        self, catalog: str, table: TableName, types: Sequence[TableOptimizerTypeType], began: float
    ) -> StepReport:
        created = []
        try:
            found = self._glue.get_table(DatabaseName=table.database, Name=table.table)["Table"]
            for each in types:
                configuration = configuration_of(each, self._options, found.get("Parameters", {}))
                if self._create(catalog, table, each, configuration):
                    created.append(each)
        except Exception as error:
            failure = _failure(error, f"the table optimizers of {table}")
            return StepReport(table, "optimizers", "failed", failure=failure, seconds=time.monotonic() - began)
        done = f"turned on Glue's optimizers {', '.join(created)}" if created else "has Glue's optimizers"
        figures = {"optimizers": len(created)}
        return StepReport(table, "optimizers", done, figures, seconds=time.monotonic() - began)

    def _create(
        self,
        catalog: str,
        table: TableName,
        type_: TableOptimizerTypeType,
        configuration: TableOptimizerConfigurationTypeDef,
    ) -> bool:
        """Create an optimizer; return whether there was none."""
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
    """Return an optimizer's configuration (Glue API: TableOptimizerConfiguration) for a table with these parameters.

    Where the table has a property of its own, the option is left out: Glue then reads the property.
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


def _failure(error: Exception, what: str) -> Failure:
    found = explain(error, doing="turn on", resource=what)
    if found is not None:
        return found
    trace = "".join(traceback.format_exception(error))
    return Failure(f"Cannot turn on {what}: {error!r}.", trace, "system_error")
