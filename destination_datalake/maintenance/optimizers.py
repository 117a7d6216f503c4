"""Glue's table optimizers, turned on for tables that have none: compaction, retention of snapshots, orphans.

https://docs.aws.amazon.com/glue/latest/dg/table-optimizers.html. One that exists is left as it is, a disabled one too:
somebody wanted it so. So the options of a table whose optimizers are on are changed in Glue.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from destination_datalake.aws.caller import caller_arn
from destination_datalake.aws.errors import explain
from destination_datalake.errors import Failure
from destination_datalake.maintenance.report import StepReport

if TYPE_CHECKING:
    from mypy_boto3_glue import GlueClient
    from mypy_boto3_glue.literals import TableOptimizerTypeType
    from mypy_boto3_glue.type_defs import TableOptimizerConfigurationTypeDef

    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.tables import GlueOptimizers
    from destination_datalake.tables.table import TableName

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


def catalog_id(access: AwsAccess) -> str:
    """Return the id of the Data Catalog: the configured one, or the caller's account. Raises what STS raises."""
    return access.glue_catalog_id or caller_arn(access).split(":")[4]


def _failure(error: Exception, what: str) -> Failure:
    found = explain(error, doing="turn on", resource=what)
    if found is not None:
        return found
    trace = "".join(traceback.format_exception(error))
    return Failure(f"Cannot turn on {what}: {error!r}.", trace, "system_error")
