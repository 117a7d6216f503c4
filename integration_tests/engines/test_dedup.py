"""Spark with Iceberg reads tables that the connector merges rows into, and writes to them between and during merges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from emulated_aws.server import ACCESS_KEY_ID, REGION, SECRET_ACCESS_KEY, AwsServer

from destination_datalake.aws.access import AccessKeys, AwsAccess
from integration_tests.engines.engine import Engine
from unit_tests.tables.iceberg.dedup.orders import Orders, named
from unit_tests.tables.iceberg.lake import Lake, no_rewrite
from unit_tests.tables.iceberg.maintenance.compacting import compacted

BY_ID = [{"source": "id", "transform": "bucket[3]"}]
BY_VERSION = [{"source": "version"}]
BY_PARTITION = "merge-on-read by partition"
MODES = ("copy-on-write", "merge-on-read", BY_PARTITION)


@pytest.fixture
def orders(aws: AwsServer) -> Orders:
    return Orders(Lake(AwsAccess(REGION, AccessKeys(ACCESS_KEY_ID, SECRET_ACCESS_KEY), aws.endpoint_url)))


class Spark:
    """The table of orders as Spark has it."""

    def __init__(self, engine: Engine, orders: Orders) -> None:
        self._engine = engine
        self._name = f"{orders.lake.name.database}.orders"
        self.table = f"glue.{self._name}"

    def sql(self, statement: str) -> list[dict[str, Any]]:
        return self._engine.sql(statement.format(t=self.table)).rows

    def call(self, procedure: str, arguments: str = "") -> None:
        self._engine.sql(f"CALL glue.system.{procedure}(table => '{self._name}'{arguments})")

    def compact(self) -> None:
        self.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")

    def expire(self) -> None:
        self.call("expire_snapshots", ", older_than => now(), retain_last => 1")

    def set(self, **properties: str) -> None:
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({pairs})")

    def writes(self, mode: str) -> None:
        """Let Spark remove rows by a mode; position deletes are a file for each data file, or for each partition."""
        self.set(**{"write.delete.granularity": "partition" if mode == BY_PARTITION else "file"})
        mode = "merge-on-read" if mode == BY_PARTITION else mode
        self.set(**{f"write.{kind}.mode": mode for kind in ("delete", "update", "merge")})

    def names(self) -> dict[int, str]:
        rows = self.sql("SELECT id, name FROM {t}")
        name_by_id = {row["id"]: row["name"] for row in rows}
        assert len(name_by_id) == len(rows)
        return name_by_id


def delete_ids(*ids: int) -> str:
    return f"DELETE FROM {{t}} WHERE id IN ({', '.join(map(str, ids))})"


@pytest.mark.parametrize("partition_by", [None, BY_ID, BY_VERSION], ids=["not partitioned", "by key", "rows move"])
@pytest.mark.parametrize("how", ["copy_on_write", "merge_on_read"])
def test_spark_reads_what_was_merged(engine: Engine, orders: Orders, how: str, partition_by: Any) -> None:
    options: dict[str, Any] = {"partition_by": partition_by, "dedup": {"deletes": how}}
    spark = Spark(engine, orders)
    orders.sync([named(id_, "a", 1) for id_ in range(20)], **options)
    orders.sync([named(id_, "b", 2) for id_ in range(3, 6)], [named(9, "", 2, deleted=True)], **options)
    orders.sync([named(id_, "c", 3) for id_ in (4, 9, 30)], **options)
    expected = {**dict.fromkeys(range(20), "a"), 3: "b", 4: "c", 5: "b", 9: "c", 30: "c"}

    assert orders.names() == spark.names() == expected
    assert bool(orders.lake.deletes()) == (how == "merge_on_read")

    compacted(orders.lake, target=100)
    assert orders.names() == spark.names() == expected


@pytest.mark.parametrize("spark_mode", MODES)
@pytest.mark.parametrize("own_mode", ["copy_on_write", "merge_on_read"])
def test_rows_that_spark_has_changed_are_merged_into(
    engine: Engine, orders: Orders, own_mode: str, spark_mode: str
) -> None:
    spark = Spark(engine, orders)
    options: dict[str, Any] = {"dedup": {"deletes": own_mode}}
    orders.sync([named(id_, "a", 1) for id_ in range(10)], **options)
    orders.sync([named(1, "b", 2)], **options)
    spark.writes(spark_mode)

    spark.sql(delete_ids(1, 2, 3))
    spark.sql("UPDATE {t} SET name = 'spark', version = 5 WHERE id IN (4, 5)")
    spark.sql(
        "MERGE INTO {t} t USING (SELECT 6L AS id UNION SELECT 20L) s ON t.id = s.id "
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, name, version) VALUES (20, 'spark', 1)"
    )
    sent = [named(2, "back", 0), named(4, "older", 4), named(5, "newer", 6), named(20, "c", 2), named(7, "c", 0)]
    orders.sync(sent, **options)

    expected = {0: "a", 2: "back", 4: "spark", 5: "newer", 7: "a", 8: "a", 9: "a", 20: "c"}
    assert orders.names() == spark.names() == expected

    compacted(orders.lake, target=100)
    spark.compact()
    spark.expire()
    orders.sync([named(8, "", 9, deleted=True)], **options)
    assert orders.names() == spark.names() == {id_: name for id_, name in expected.items() if id_ != 8}


def test_spark_keeps_what_is_pending(engine: Engine, orders: Orders) -> None:
    """Compaction, expiry, and changes of the schema, while rows wait for their merge."""
    spark = Spark(engine, orders)
    orders.sync([named(id_, "a", 1) for id_ in range(6)])
    orders.sync([named(0, "b", 2)])
    dying = orders.open()
    orders.land(dying, named(1, "pending", 2), named(6, "pending", 2), named(7, "pending", 2))

    spark.set(**{"history.expire.max-ref-age-ms": "1", "history.expire.max-snapshot-age-ms": "1"})
    spark.writes("merge-on-read")
    spark.sql(delete_ids(2))
    spark.compact()
    spark.sql("ALTER TABLE {t} ADD COLUMN theirs int")
    spark.sql("ALTER TABLE {t} RENAME COLUMN id TO number")
    spark.sql("ALTER TABLE {t} RENAME COLUMN number TO id")
    spark.sql("UPDATE {t} SET theirs = 1 WHERE id = 3")
    spark.expire()
    assert orders.lake.branches() == ["airbyte_pending"]
    orders.sync([named(7, "c", 3)])

    assert orders.names() == spark.names() == {0: "b", 1: "pending", 3: "a", 4: "a", 5: "a", 6: "pending", 7: "c"}
    assert spark.sql("SELECT id FROM {t} WHERE theirs = 1") == [{"id": 3}]


@pytest.mark.parametrize("own_mode", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("spark_mode", MODES)
def test_spark_writes_while_a_merge_is_committed(
    engine: Engine, orders: Orders, own_mode: str, spark_mode: str
) -> None:
    spark = Spark(engine, orders)
    options: dict[str, Any] = {"dedup": {"deletes": own_mode}}
    orders.sync([named(id_, "a", 1) for id_ in range(10)], **options)
    spark.writes(spark_mode)

    def delete() -> None:
        spark.sql(delete_ids(2, 3))

    def rewrite_all() -> None:
        spark.compact()
        spark.expire()

    def alter() -> None:
        spark.sql("ALTER TABLE {t} ADD COLUMN theirs int")

    def append() -> None:
        spark.sql("INSERT INTO {t} (id, name, version) VALUES (40, 'spark', 5)")

    expected = dict.fromkeys(range(10), "a")
    acts: list[tuple[Callable[[], object], dict[int, str]]] = [
        (delete, {}),
        (rewrite_all, {}),
        (alter, {}),
        (append, {40: "spark"}),
    ]
    for number, (act, added) in enumerate(acts, start=2):
        syncing = orders.open(**options)
        orders.land(syncing, named(1, f"b{number}", number), named(3, f"b{number}", number), named(40, "low", 0))
        orders.lake.at_the_next_update(act)
        syncing.publish(no_rewrite)
        expected |= {1: f"b{number}", 3: f"b{number}", 40: expected.get(40, "low"), **added}
        expected.pop(2, None)
        assert orders.names() == spark.names() == expected, act.__name__
        assert orders.lake.branches() == []
