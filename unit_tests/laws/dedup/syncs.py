"""Syncs of histories into a table, and its maintenance."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from destination_datalake.aws.access import AwsAccess
from destination_datalake.config.options import Config
from destination_datalake.config.tables import Retention
from destination_datalake.files.rewrite import compact
from destination_datalake.maintenance.steps import Maintainer
from destination_datalake.protocol.catalog import Stream, parse_catalog
from destination_datalake.tables.table import TableName
from unit_tests.cloud import BUCKET, ungoverned
from unit_tests.config.examples import options
from unit_tests.laws.dedup.histories import History, Step
from unit_tests.laws.dedup.model.worlds import Sync
from unit_tests.laws.syncs import TableSync


def maintain(table: TableName, access: AwsAccess, days: int) -> None:
    """Maintain a table, so many days from now. Fails if a step does."""
    maintainer = Maintainer(
        Retention(snapshot_retention_days=2, min_snapshots_to_keep=1, orphan_retention_days=1),
        1024 * 1024,
        ungoverned(access),
        lambda tasks: list(compact(tasks)),
        lambda: True,
        now=lambda: datetime.now(UTC) + timedelta(days=days),
    )
    for report in (maintainer.compact(table), *maintainer.remove(table)):
        assert report.failure is None, report


class RunningSync(TableSync):
    """One sync of a history."""

    def __init__(
        self, history: History, step: Step, asked: Sync, number: int, stream: str, access: AwsAccess, folder: Path
    ) -> None:
        configured = _stream(history, step, asked, number, stream)
        super().__init__(number, _config(history, step, stream), configured, access, folder)


def _config(history: History, step: Step, stream: str) -> Config:
    return Config.parse(
        options(
            bucket_name=BUCKET,
            bucket_prefix="lake",
            table_type="ICEBERG",
            numeric_types="int/decimal" if history.decimals else "int/float",
            streams=[{"stream": stream, "partition_by": [*history.partition_by(step)]}],
            dedup={
                "deletes": "merge_on_read" if step.merge_on_read else "copy_on_write",
                "cdc_deletion": "soft" if step.soft else "hard",
            },
        )
    )


def _stream(history: History, step: Step, asked: Sync, number: int, name: str) -> Stream:
    """Return the stream, as the configured catalog of the sync has it."""
    cursor = history.cursor(step)
    configured: dict[str, Any] = {
        "stream": {"name": name, "json_schema": history.schema(step)},
        "destination_sync_mode": "append" if asked.by is None else "append_dedup",
        "cursor_field": [] if cursor is None else [cursor],
        "primary_key": [[part] for part in history.key],
        "generation_id": asked.generation,
        "minimum_generation_id": asked.generation if asked.overwrites else 0,
        "sync_id": number,
    }
    [stream] = parse_catalog({"streams": [configured]})
    return stream
