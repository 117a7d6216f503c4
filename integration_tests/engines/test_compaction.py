"""Spark with Iceberg and the connector's compaction take turns at one table, and neither changes a row by it."""

from __future__ import annotations

import pytest
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, AwsServer

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.files.rewrite import compact
from destination_datalake.tables.iceberg.maintenance.compaction import CompactionReport, TableCompaction
from destination_datalake.tables.table import TableName
from integration_tests.engines.engine import Engine
from integration_tests.harness.lake import Lake
from unit_tests.cloud import ungoverned

TYPES = {
    "flag": ("boolean", "id % 2 = 0"),
    "small": ("int", "id - 3"),
    "large": ("bigint", "id * 10000000000"),
    "ratio": ("float", "id / 7"),
    "exact": ("double", "id / 7"),
    "money": ("decimal(38,10)", "id / 7"),
    "cents": ("decimal(5,2)", "id / 8"),
    "day": ("date", "date_add(date'1969-12-30', id)"),
    "at": ("timestamp", "timestamp'1582-10-15 00:00:00.000001' + make_interval(id)"),
    "local": ("timestamp_ntz", "timestamp_ntz'9999-12-31 23:59:59.999999' - make_interval(id)"),
    "text": ("string", "if(id = 3, null, concat('ä', id))"),
    "bytes": ("binary", "encode(concat('b', id), 'UTF-8')"),
    "inner": ("struct<a: int, b: array<string>>", "named_struct('a', id, 'b', array('x', null))"),
    "list": ("array<struct<a: int>>", "if(id = 2, null, array(named_struct('a', id), null))"),
    "map": ("map<string, array<int>>", "if(id = 4, null, map('k', array(id, null)))"),
}


@pytest.fixture
def table(engine: Engine, lake: Lake) -> str:
    """A table of Spark with eight small files, of all its types. Lost when the lake's account is."""
    lake.glue.create_database(DatabaseInput={"Name": lake.database})
    name = f"glue.{lake.database}.types"
    columns = ", ".join(f"{column} {type_}" for column, (type_, _) in TYPES.items())
    engine.sql(
        f"CREATE TABLE {name} (id int, {columns}) USING iceberg LOCATION 's3://{lake.bucket}/types' TBLPROPERTIES "
        "('format-version' = '2', 'write.delete.mode' = 'merge-on-read')"
    )
    append(engine, name, range(8))
    return name


def append(engine: Engine, table: str, ids: range) -> None:
    """Add a file for each id."""
    for id_ in ids:
        values = ", ".join(value.replace("id", str(id_)) for _, value in TYPES.values())
        engine.sql(f"INSERT INTO {table} SELECT {id_}, {values}")


def compacted(lake: Lake, aws: AwsServer) -> CompactionReport:
    access = AwsAccess(REGION, AccessKeys(ACCESS_KEY_ID, SECRET_ACCESS_KEY), aws.endpoint_url)
    name = TableName(lake.database, "types")
    return TableCompaction(name, ungoverned(access), lambda tasks: list(compact(tasks)), 10_000_000).run()


def rows(engine: Engine, table: str) -> list[str]:
    return sorted(map(repr, engine.sql(f"SELECT * FROM {table}").rows))


def test_spark_reads_the_same_values_of_all_types(engine: Engine, table: str, lake: Lake, aws: AwsServer) -> None:
    before = rows(engine, table)
    assert len(set(before)) == 8

    report = compacted(lake, aws)

    assert (report.files_before, report.files_after, report.notes, report.failures) == (8, 1, (), [])
    assert rows(engine, table) == before
    assert engine.sql(f"SELECT * FROM {table} WHERE money > 0.5").files == 1
    assert engine.sql(f"SELECT * FROM {table} WHERE day < date'1969-12-01'").files == 0


def test_deletes_before_and_after_a_compaction_apply(engine: Engine, table: str, lake: Lake, aws: AwsServer) -> None:
    """Spark writes position deletes; then it compacts what the connector has left, and the deletes with it."""
    engine.sql(f"DELETE FROM {table} WHERE id = 1 OR id = 2 AND flag")
    append(engine, table, range(10, 16))
    before = rows(engine, table)

    compacted(lake, aws)
    assert rows(engine, table) == before

    engine.sql(f"DELETE FROM {table} WHERE id = 12")
    append(engine, table, range(20, 22))
    selected = engine.sql(f"SELECT id FROM {table} ORDER BY id").rows
    assert [row["id"] for row in selected] == [0, 3, 4, 5, 6, 7, 10, 11, 13, 14, 15, 20, 21]

    before = rows(engine, table)
    catalog, _, name = table.partition(".")
    engine.sql(f"CALL {catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    assert rows(engine, table) == before
    assert compacted(lake, aws).commits == 0


def test_spark_sees_a_replacement_that_adds_no_rows(engine: Engine, table: str, lake: Lake, aws: AwsServer) -> None:
    compacted(lake, aws)

    snapshots = engine.sql(f"SELECT operation, summary FROM {table}.snapshots ORDER BY committed_at").rows
    assert snapshots[-1]["operation"] == "replace"
    assert snapshots[-1]["summary"]["total-records"] == "8"
    [file] = engine.sql(f"SELECT file_path, record_count, readable_metrics FROM {table}.files").rows
    assert file["record_count"] == 8
    assert file["readable_metrics"]["small"]["upper_bound"] == 4
    assert len(engine.sql(f"SELECT * FROM {table}.entries WHERE status = 2").rows) == 8
