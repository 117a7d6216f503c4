"""Reports of syncs, as tests need them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from destination_datalake.reports.report import ReportLine, timestamp

BEGAN = datetime(2026, 11, 2, 6, 0, tzinfo=UTC)


def a_line(run: str = "run-1", began: datetime = BEGAN, seconds: float = 60.0, **members: Any) -> ReportLine:
    """The line of a sync."""
    given: dict[str, Any] = {
        "type": "source",
        "run_id": run,
        "connection_id": "connection",
        "status": "finished",
        "start_time": timestamp(began),
        "finish_time": timestamp(began + timedelta(seconds=seconds)),
        "seconds": seconds,
        "database": "landing",
        "table_type": "ICEBERG",
        "file_format": "Parquet",
        "s3_bucket": "lake",
        **members,
    }
    return ReportLine(**given)


def a_stream(name: str, run: str = "run-1", began: datetime = BEGAN, **members: Any) -> ReportLine:
    """The line of one of its streams."""
    return a_line(run, began, **{"type": "event", "stream_name": name, "table_name": name, **members})
