"""Spark's own reader of Parquet over a folder, which finds partitions in paths (partition discovery)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from integration_tests.harness.engines.duck import Scan

if TYPE_CHECKING:
    from pyspark import SparkContext


_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "1"}


@dataclass(frozen=True)
class SparkReader:
    """A Spark that is up; its SQL session is its own."""

    context: "SparkContext"

    def scan(self, folder: Path, where: str = "true", options: Mapping[str, str] | None = None) -> Scan:
        """Return the rows that satisfy a condition, and of how many files how many were opened."""
        from pyspark.sql import SparkSession

        # With adaptive execution a plan has its metrics elsewhere.
        session = SparkSession(self.context, options=_SETTINGS | {"spark.sql.adaptive.enabled": "false"})
        frame = session.read.options(mergeSchema="true", **(options or {})).parquet(str(folder)).where(where)
        rows: list[dict[str, Any]] = [row.asDict(recursive=True) for row in frame.collect()]
        plan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
        return Scan(rows, plan.metrics().get("numFiles").get().value(), sum(1 for _ in folder.rglob("*.parquet")))

    def run(self, statements: str) -> list[dict[str, Any]]:
        """Run statements that end in semicolons; return the rows of the last one. Their tables are dropped."""
        from pyspark.sql import SparkSession

        session = SparkSession(self.context, options=_SETTINGS)
        try:
            *_, rows = [session.sql(statement).collect() for statement in filter(str.strip, statements.split(";"))]
        finally:
            for table in session.catalog.listTables():
                session.sql(f"DROP TABLE {table.name}")
        return [row.asDict(recursive=True) for row in rows]
