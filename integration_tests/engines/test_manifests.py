"""Spark with Iceberg reads tables whose manifests the connector has merged, and merges what the connector has left."""

from __future__ import annotations

from collections.abc import Iterable

from integration_tests.engines.engine import Engine
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.warehouse import INTEGER, object_schema

SCHEMA = object_schema(id=INTEGER, price={"type": "number"})
PRICES = (0.1, -1e300, None)


def sync(platform: Platform, lake: Lake, first: int) -> None:
    """Append two rows of each price, each price in a partition and so in a file of its own."""
    config = lake.config(
        table_type="ICEBERG",
        numeric_types="bigint/double",
        streams=[{"stream": "sales", "partition_by": [{"source": "price"}]}],
    )
    rows = [record("sales", {"id": first + number, "price": price}) for number, price in enumerate([*PRICES, *PRICES])]
    catalog = configured_catalog(configured_stream("sales", SCHEMA))
    run = platform.write(config, catalog, [*rows, status("sales", "COMPLETE")])
    assert run.exit_code == 0, run.report()


def ids(rows: Iterable[dict[str, int]]) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_merged_manifests_mean_the_same_to_spark(engine: Engine, platform: Platform, lake: Lake) -> None:
    table = f"glue.{lake.database}.sales"
    sync(platform, lake, 0)
    engine.sql(
        f"ALTER TABLE {table} SET TBLPROPERTIES ('commit.manifest.min-count-to-merge' = '2', "
        "'write.delete.mode' = 'merge-on-read')"
    )
    sync(platform, lake, 10)
    engine.sql(f"DELETE FROM {table} WHERE id = 10")
    before = engine.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at DESC LIMIT 1").rows
    sync(platform, lake, 20)
    sync(platform, lake, 30)

    expected = sorted({start + number for start in (0, 10, 20, 30) for number in range(6)} - {10})
    assert ids(engine.sql(f"SELECT id FROM {table}").rows) == expected
    manifests = engine.sql(f"SELECT content, existing_data_files_count FROM {table}.manifests").rows
    assert [manifest["content"] for manifest in manifests].count(1) == 1
    assert max(manifest["existing_data_files_count"] for manifest in manifests) >= 2 * len(PRICES)
    scan = engine.sql(f"SELECT id FROM {table} WHERE price = 0.1D")
    assert (ids(scan.rows), scan.files) == ([0, 3, 13, 20, 23, 30, 33], 4)
    scan = engine.sql(f"SELECT id FROM {table} WHERE price < -1D")
    assert (ids(scan.rows), scan.files) == ([1, 4, 11, 14, 21, 24, 31, 34], 4)

    original_rows = engine.sql(f"SELECT id FROM {table} VERSION AS OF {before[0]['snapshot_id']}").rows
    assert ids(original_rows) == [id_ for id_ in expected if id_ < 20]
    added = engine.sql(f"SELECT snapshot_id, count(*) AS files FROM {table}.all_entries WHERE status = 1 GROUP BY 1")
    assert {row["files"] for row in added.rows} == {len(PRICES), 1}

    catalog, _, name = table.partition(".")
    engine.sql(f"CALL {catalog}.system.rewrite_manifests('{name}')")
    sync(platform, lake, 40)
    assert ids(engine.sql(f"SELECT id FROM {table}").rows) == [*expected, *range(40, 46)]
    engine.sql(f"CALL {catalog}.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)")
    assert ids(engine.sql(f"SELECT id FROM {table}").rows) == [*expected, *range(40, 46)]
