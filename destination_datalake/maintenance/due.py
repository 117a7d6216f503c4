"""Maintenance at the end of a sync: what is due, in bounded time. It never fails the sync."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from destination_datalake.config.tables import ConnectorMaintenance, GlueOptimizers
from destination_datalake.maintenance.report import StepReport
from destination_datalake.tables.ownership import TableOwner

if TYPE_CHECKING:
    from destination_datalake.aws.access import AwsAccess
    from destination_datalake.config.options import Config
    from destination_datalake.spark.engine import Engine
    from destination_datalake.tables.table import TableName

_logger = logging.getLogger(__name__)

SECONDS = 600
"""After so many seconds nothing more is begun: the platform waits for the sync's end."""

_TABLES_AT_ONCE = 4


def maintain_after_sync(
    config: Config, tables: Sequence[TableName], access: AwsAccess, engine: Engine, stops: Callable[[], bool]
) -> None:
    """Do what is due for these tables, as the options ask for, until `stops` returns true. Raises nothing."""
    try:
        for report in _reports(config, tables, access, engine, stops):
            if report.failure is not None:
                _logger.warning("%s Rows and states are safe. The next sync tries again.", report.failure.message)
            _logger.info(report.log_line())
    except Exception:
        _logger.warning("Tables could not be maintained. Rows and states are safe.", exc_info=True)


def _reports(
    config: Config, tables: Sequence[TableName], access: AwsAccess, engine: Engine, stops: Callable[[], bool]
) -> Iterator[StepReport]:
    options = config.maintenance
    if not tables or options.mode == "none":
        return
    if config.table_type == "HIVE":
        _logger.info("maintenance.mode %s is for Iceberg tables; Hive tables need none.", options.mode)
        return
    tables = [table for table in tables if _is_ours(table, access)]
    if isinstance(options, GlueOptimizers) and tables:
        from destination_datalake.maintenance.optimizers import Optimizers

        yield from Optimizers(options, access).turn_on(tables)
    if isinstance(options, ConnectorMaintenance) and tables:
        yield from _maintained(config, options, tables, access, engine, stops)


def _is_ours(table: TableName, access: AwsAccess) -> bool:
    """Whether this connector has created the table; also if there is none any more, as the steps then say."""
    glue = access.client("glue")
    try:
        found = glue.get_table(DatabaseName=table.database, Name=table.table)["Table"]
    except glue.exceptions.EntityNotFoundException:
        return True
    except Exception:
        # It may be of others, and the next requests may succeed.
        _logger.warning("Table %s is not maintained: it cannot be told who has created it.", table, exc_info=True)
        return False
    if TableOwner.of(found.get("Parameters", {})) is not None:
        return True
    _logger.info("Table %s was not created by this connector, which leaves its maintenance to others.", table)
    return False


def _maintained(
    config: Config,
    options: ConnectorMaintenance,
    tables: Sequence[TableName],
    access: AwsAccess,
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
        access,
        lambda tasks: engine.run(compact, tasks),
        lambda: time.monotonic() < deadline and not stops(),
    )
    with ThreadPoolExecutor(_TABLES_AT_ONCE, "maintenance") as pool:
        for reports in pool.map(lambda table: list(maintainer.due(table)), tables):
            yield from reports
