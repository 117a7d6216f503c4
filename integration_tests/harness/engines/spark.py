"""Read a folder of Parquet files with Spark, which finds partitions in paths (partition discovery)."""

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
    """Reads files with the running Spark, in a SQL session of its own."""

    context: "SparkContext"

    def scan(self, folder: Path, where: str = "true", options: Mapping[str, str] | None = None) -> Scan:
        """Return the rows that satisfy the SQL condition `where`, and the number of opened files and of all files."""
        from pyspark.sql import SparkSession

        # Adaptive execution must be off, because it stores the metrics of a plan elsewhere.
        session = SparkSession(self.context, options=_SETTINGS | {"spark.sql.adaptive.enabled": "false"})
        frame = session.read.options(mergeSchema="true", **(options or {})).parquet(str(folder)).where(where)
        rows: list[dict[str, Any]] = [row.asDict(recursive=True) for row in frame.collect()]
        plan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
        return Scan(rows, plan.metrics().get("numFiles").get().value(), sum(1 for _ in folder.rglob("*.parquet")))

    def run(self, statements: str) -> list[dict[str, Any]]:
        """Run SQL statements that end in semicolons, drop the tables they create, and return the last one's rows."""
        from pyspark.sql import SparkSession

        session = SparkSession(self.context, options=_SETTINGS)
        try:
            *_, rows = [session.sql(statement).collect() for statement in filter(str.strip, statements.split(";"))]
        finally:
            for table in session.catalog.listTables():
                session.sql(f"DROP TABLE {table.name}")
        return [row.asDict(recursive=True) for row in rows]
