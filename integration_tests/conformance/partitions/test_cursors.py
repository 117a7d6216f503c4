"""What streams are partitioned by: cursors of all types and shapes that sources declare, and streams without one."""

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest

from integration_tests.harness.engines.catalog import registered
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.output import Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema

pytestmark = pytest.mark.share(1)

DATE: Json = {"type": ["null", "string"], "format": "date"}
INSTANT: Json = {"type": ["null", "string"], "format": "date-time"}
NAIVE: Json = {**INSTANT, "airbyte_type": "timestamp_without_timezone"}


@dataclass(frozen=True)
class Case:
    """One stream: its cursor, its records' values in the order of their ids (1, 2, …), and what its table becomes.

    `days` are the days of the partitions that the rows are in, None is the null partition; None for all: no partitions.
    """

    name: str
    properties: Json
    cursor: Sequence[str]
    values: Sequence[Any]
    days: Sequence[str | None] | None
    more: Json = field(default_factory=dict)


AT = "updated_at"

CASES = (
    Case(
        "dates",
        {AT: DATE},
        [AT],
        ["2024-02-29", "1969-12-31", "0001-01-01", "9999-12-31", None],
        ["2024-02-29", "1969-12-31", "0001-01-01", "9999-12-31", None],
    ),
    Case(
        "instants",
        {AT: INSTANT},
        [AT],
        ["2024-03-01T00:30:00+02:00", "1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"],
        ["2024-02-29", "1969-12-31", "0001-01-01", "9999-12-31"],
    ),
    Case("naive", {AT: NAIVE}, [AT], ["2024-02-29T23:59:59", None], ["2024-02-29", None]),
    Case("no_dates", {AT: INSTANT}, [AT], ["2024-02-29T12:00:00Z", "soon", 7], ["2024-02-29", None, None]),
    Case("texts", {AT: STRING}, [AT], ["2024-02-29", "x"], None),
    Case("numbers", {AT: INTEGER}, [AT], [1_700_000_000, None], None),
    Case("nested", {"data": object_schema(updated_at=INSTANT)}, ["data", AT], [None], None),
    Case("missing", {"other": INSTANT}, [AT], [None], None),
    Case("no_cursor", {AT: INSTANT}, [], ["2024-02-29T00:00:00Z"], None),
    Case("two", {"version": INTEGER, AT: DATE}, ["version", AT], ["2024-02-29"], ["2024-02-29"]),
    Case("camel", {"updatedAt": DATE}, ["updatedAt"], ["2024-02-29"], ["2024-02-29"]),
    Case(
        "like_a_key",
        {AT: DATE, "updated_at_day": INTEGER, "updated_at_date": STRING, "dt": STRING, "year": INTEGER},
        [AT],
        ["2024-02-29"],
        ["2024-02-29"],
        more={"updated_at_day": 7, "updated_at_date": "x", "dt": "y", "year": 1},
    ),
)


def sync(lake: Lake, platform: Platform, cases: Sequence[Case], **options: object) -> Run:
    streams, lines = [], []
    for case in cases:
        stream = configured_stream(case.name, object_schema(id=INTEGER, **case.properties))
        streams.append({**stream, "cursor_field": case.cursor})
        name = next((name for name in case.cursor if name in case.properties and name != "version"), AT)
        lines += [
            record(case.name, {"id": id, **({name: value} if name in case.properties else {}), **case.more})
            for id, value in enumerate(case.values, start=1)
        ]
        lines.append(status(case.name, "COMPLETE"))
    return platform.write(lake.config(**options), configured_catalog(*streams), lines)


def days(case: Case) -> dict[int, str | None]:
    return dict(enumerate(case.days or (), start=1))


def test_an_iceberg_table_is_partitioned_by_the_day_of_any_cursor_that_is_a_date(
    lake: Lake, platform: Platform
) -> None:
    """One sync of a dozen streams: each row lies in a file of its cursor's day in UTC; a null one in the null one."""
    run = sync(lake, platform, CASES, partitioning="DATE")

    assert run.exit_code == 0, run.report()
    for case in CASES:
        table = lake.iceberg_table(lake.database, case.name)
        assert sorted(row["id"] for row in lake.rows(lake.database, case.name)) == [*range(1, len(case.values) + 1)]
        day_by_id: dict[int, str | None] = {}
        for task in table.scan().plan_files():
            key = task.file.file_path.removeprefix(f"s3://{lake.bucket}/")
            body = lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read()
            ids: list[Any] = pq.read_table(io.BytesIO(body))["id"].to_pylist()
            assert len(task.file.partition) == (case.days is not None), case.name
            day_by_id |= {int(id): day(task.file.partition[0]) for id in ids if case.days is not None}
        assert day_by_id == days(case), case.name
    assert told(run) == {case.name for case in CASES if case.days is None}


@pytest.mark.share(1)
@pytest.mark.parametrize("format_", ["Parquet", "JSONL"])
def test_a_hive_table_is_partitioned_by_the_date_of_any_cursor_that_is_a_date(
    lake: Lake, platform: Platform, format_: str
) -> None:
    """The same streams; no partition key has the name of a column, and no column is taken out of the files."""
    run = sync(lake, platform, CASES, partitioning="DATE", table_type="HIVE", format={"format_type": format_})

    assert run.exit_code == 0, run.report()
    for case in CASES:
        entry = lake.glue_table(lake.database, case.name)
        keys = [key["Name"] for key in entry["PartitionKeys"]]
        assert not {*keys} & {column["Name"] for column in entry["StorageDescriptor"]["Columns"]}
        assert len(keys) == (case.days is not None), case.name
        if case.days is None:
            assert len(lake.rows(lake.database, case.name)) == len(case.values)
            continue
        rows = [(row["id"], row[keys[0]]) for partition in registered(lake, case.name) for row in partition.rows]
        assert len(rows) == len(case.values)
        assert {id: value and value.isoformat() for id, value in rows} == days(case), case.name
    assert told(run) == {case.name for case in CASES if case.days is None}


def day(value: Any) -> str | None:
    """Return a partition value of Iceberg as a date."""
    if value is None:
        return None
    return (date(1970, 1, 1) + timedelta(days=value) if isinstance(value, int) else value).isoformat()


def told(run: Run) -> set[str]:
    """Return the streams of which the log says that they are not partitioned."""
    return {text.split()[2].rpartition(".")[2] for text in run.logs if "is not partitioned" in text}
