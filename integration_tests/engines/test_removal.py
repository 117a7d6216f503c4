"""Nothing live is removed from tables that Spark with Iceberg has written: its manifests have many entries a block."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, AwsServer

from destination_datalake.aws.access import AccessKeys, AwsAccess
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.maintenance.cleanup import Expirer, OrphanRemover
from destination_datalake.tables.table import TableName
from integration_tests.engines.engine import Engine
from integration_tests.harness.lake import Lake
from unit_tests.cloud import ungoverned

PARTITIONS = {
    "by decimals": "price, cents",
    "by truncated decimals": "truncate(10, price), bucket(4, cents)",
    "by bytes and text": "bytes, truncate(2, text)",
    "by time": "day, hours(at)",
}


@pytest.mark.parametrize("partitions", PARTITIONS.values(), ids=PARTITIONS)
def test_rows_of_every_branch_and_tag_stay(engine: Engine, lake: Lake, aws: AwsServer, partitions: str) -> None:
    lake.glue.create_database(DatabaseInput={"Name": lake.database})
    table = f"glue.{lake.database}.prices"
    engine.sql(
        f"CREATE TABLE {table} (id int, price decimal(10,2), cents decimal(38,4), bytes binary, text string, day date, "
        f"at timestamp) USING iceberg PARTITIONED BY ({partitions}) LOCATION 's3://{lake.bucket}/prices' "
        "TBLPROPERTIES ('write.metadata.metrics.default' = 'none')"
    )
    insert(engine, table, range(50))
    engine.sql(f"ALTER TABLE {table} CREATE TAG before")
    engine.sql(f"DELETE FROM {table} WHERE id % 3 = 0")
    engine.sql(f"ALTER TABLE {table} CREATE BRANCH audit")
    insert(engine, f"{table}.branch_audit", range(50, 60))
    insert(engine, table, range(60, 70))
    engine.sql(f"DELETE FROM {table} WHERE id = 61")
    expected = {ref: ids(engine, f"{table} VERSION AS OF '{ref}'") for ref in ("main", "before", "audit")}
    objects = lake.objects()

    remove(lake, aws)

    assert {ref: ids(engine, f"{table} VERSION AS OF '{ref}'") for ref in expected} == expected
    assert len(lake.objects()) < len(objects)


def insert(engine: Engine, table: str, ids: range) -> None:
    engine.sql(
        f"INSERT INTO {table} SELECT id, id * 7.31 - 50, id / 3, encode(repeat('b', int(id)), 'UTF-8'), "
        "concat('ä', id), date_add(date'1969-12-30', int(id)), timestamp'1969-12-31' + make_interval(0, 0, 0, 0, id) "
        f"FROM range({ids.start}, {ids.stop})"
    )


def ids(engine: Engine, table: str) -> list[int]:
    return sorted(row["id"] for row in engine.sql(f"SELECT id FROM {table}").rows)


def remove(lake: Lake, aws: AwsServer) -> None:
    """Expire all snapshots that no branch or tag needs, and remove orphans, as maintenance does days later."""
    access = AwsAccess(REGION, AccessKeys(ACCESS_KEY_ID, SECRET_ACCESS_KEY), aws.endpoint_url)
    operations, later = TableOperations(TableName(lake.database, "prices"), ungoverned(access)), datetime.now(UTC)
    later += timedelta(days=6)
    Expirer(operations, timedelta(days=5), 1).expire(later, lambda: True, dry_run=False)
    OrphanRemover(operations, timedelta(days=3)).remove(later, lambda: True, dry_run=False)
