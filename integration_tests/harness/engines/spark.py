"""Spark's own reader of Parquet over a folder, which finds partitions in paths (partition discovery)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration_tests.harness.engines.duck import Scan

if TYPE_CHECKING:
    from pyspark import SparkContext


@dataclass(frozen=True)
class SparkReader:
    """A Spark that is up; its SQL session is its own."""

    context: "SparkContext"

    def scan(self, folder: Path, where: str = "true", options: Mapping[str, str] | None = None) -> Scan:
        """Return the rows that satisfy a condition, and of how many files how many were opened."""
        from pyspark.sql import SparkSession

        # With adaptive execution a plan has its metrics elsewhere.
        settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.session.timeZone": "UTC"}
        session = SparkSession(self.context, options=settings)
        frame = session.read.options(mergeSchema="true", **(options or {})).parquet(str(folder)).where(where)
        rows: list[dict[str, Any]] = [row.asDict(recursive=True) for row in frame.collect()]
        plan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
        return Scan(rows, plan.metrics().get("numFiles").get().value(), sum(1 for _ in folder.rglob("*.parquet")))
