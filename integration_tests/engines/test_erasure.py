"""Spark with Iceberg reads a table that rows were erased from, each snapshot that is left, and writes to it."""

import random
from pathlib import Path
from typing import Literal

import pytest

from integration_tests.engines.engine import Engine
from integration_tests.erasure.deletions import Deletions
from integration_tests.erasure.oracle import objects_with
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_stream, record, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

FIRST = 1_700_000_000
SCHEMA = object_schema(user_id=INTEGER, name=STRING)


@pytest.mark.parametrize("table_kind", [TABLE_KINDS[0], PARTITIONED_KINDS[0]], ids=lambda kind: kind.name)
@pytest.mark.parametrize("mode", ["append", "append_dedup"])
def test_spark_reads_what_an_erasure_has_left(
    engine: Engine,
    lake: Lake,
    platform: Platform,
    launch: WarmLaunch,
    tmp_path: Path,
    table_kind: TableKind,
    mode: Literal["append", "append_dedup"],
) -> None:
    warehouse, table = Warehouse(lake, platform, table_kind), f"glue.{lake.database}.orders"
    keys = ["user_id"] if mode == "append_dedup" else []
    stream = configured_stream("orders", SCHEMA, mode=mode, primary_key=keys)
    for sync in range(4):
        people = [{"user_id": FIRST + 10 * sync + n, "name": f"{sync}"} for n in range(15)]
        warehouse.sync([stream], [*(record("orders", person) for person in people), status("orders", "COMPLETE")])
    before = rows(engine, table)
    gone = random.Random(1).sample(range(FIRST, FIRST + 45), 9)

    done = Deletions(launch, tmp_path).run(warehouse.config(), gone)

    assert done.exit_code == 0, done
    expected = [row for row in before if row[0] not in gone]
    assert rows(engine, table) == expected != before
    for snapshot in engine.sql(f"SELECT snapshot_id FROM {table}.snapshots").rows:
        assert not {row[0] for row in rows(engine, f"{table} VERSION AS OF {snapshot['snapshot_id']}")} & {*gone}
    engine.sql(f"DELETE FROM {table} WHERE user_id = {expected[0][0]}")
    assert rows(engine, table) == [row for row in expected if row[0] != expected[0][0]]
    assert objects_with(lake.s3, lake.bucket, gone) == {}


def rows(engine: Engine, table: str) -> list[tuple[int, str]]:
    return sorted((row["user_id"], row["name"]) for row in engine.sql(f"SELECT user_id, name FROM {table}").rows)
