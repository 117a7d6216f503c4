"""Glue's table optimizers: turned on where there are none, and otherwise left as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from destination_datalake.config.tables import GlueOptimizers
from destination_datalake.maintenance.after_sync import TYPES, Optimizers
from destination_datalake.maintenance.report import StepReport
from destination_datalake.tables.table import TableName
from unit_tests.cloud import Cloud, before

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/optimizers"
ORDERS = TableName("shop", "orders")
OPTIONS = GlueOptimizers(mode="glue", role_arn=ROLE, snapshot_retention_days=7, min_snapshots_to_keep=3)


def create_table(cloud: Cloud, name: TableName = ORDERS, parameters: Mapping[str, str] = {}) -> None:
    glue = cloud.access.client("glue")
    if name.database not in {database["Name"] for database in glue.get_databases()["DatabaseList"]}:
        glue.create_database(DatabaseInput={"Name": name.database})
    glue.create_table(
        DatabaseName=name.database,
        TableInput={"Name": name.table, "Parameters": {"table_type": "ICEBERG", **parameters}},
    )


def turn_on(cloud: Cloud, *tables: TableName, options: GlueOptimizers = OPTIONS) -> list[StepReport]:
    return list(Optimizers(options, cloud.access).turn_on(tables or (ORDERS,)))


def configuration(cloud: Cloud, type_: Any, name: TableName = ORDERS) -> Any:
    optimizer = cloud.access.client("glue").get_table_optimizer(
        CatalogId=ACCOUNT, DatabaseName=name.database, TableName=name.table, Type=type_
    )
    return optimizer["TableOptimizer"].get("configuration")


def create(cloud: Cloud, type_: Any, **configuration: bool) -> None:
    given: Any = {"roleArn": f"{ROLE}-of-others", **configuration}
    cloud.access.client("glue").create_table_optimizer(
        CatalogId=ACCOUNT,
        DatabaseName=ORDERS.database,
        TableName=ORDERS.table,
        Type=type_,
        TableOptimizerConfiguration=given,
    )


def test_a_table_without_optimizers_gets_all_of_them(cloud: Cloud) -> None:
    create_table(cloud)

    [report] = turn_on(cloud)

    assert report.failure is None
    assert report.figures == {"optimizers": 3}
    assert configuration(cloud, "compaction") == {
        "roleArn": ROLE,
        "enabled": True,
        "compactionConfiguration": {"icebergConfiguration": {"strategy": "binpack"}},
    }
    assert configuration(cloud, "retention")["retentionConfiguration"]["icebergConfiguration"] == {
        "cleanExpiredFiles": True,
        "snapshotRetentionPeriodInDays": 7,
        "numberOfSnapshotsToRetain": 3,
    }
    orphans = configuration(cloud, "orphan_file_deletion")["orphanFileDeletionConfiguration"]
    assert orphans["icebergConfiguration"] == {"orphanFileRetentionPeriodInDays": 3}


def test_turning_on_again_changes_nothing_and_says_nothing(cloud: Cloud) -> None:
    create_table(cloud)
    turn_on(cloud)

    assert turn_on(cloud, options=OPTIONS.model_copy(update={"snapshot_retention_days": 1})) == []
    retention = configuration(cloud, "retention")["retentionConfiguration"]["icebergConfiguration"]
    assert retention["snapshotRetentionPeriodInDays"] == 7


@pytest.mark.parametrize("enabled", [True, False])
def test_what_others_made_is_left_as_it_is_even_disabled(cloud: Cloud, *, enabled: bool) -> None:
    create_table(cloud)
    create(cloud, "compaction", enabled=enabled)

    [report] = turn_on(cloud)

    assert report.figures == {"optimizers": 2}
    assert configuration(cloud, "compaction") == {"roleArn": f"{ROLE}-of-others", "enabled": enabled}


def test_rules_of_the_table_itself_are_left_to_it(cloud: Cloud) -> None:
    own = {"history.expire.max-snapshot-age-ms": "1", "history.expire.min-snapshots-to-keep": "9"}
    create_table(cloud, parameters=own)

    turn_on(cloud)

    retention = configuration(cloud, "retention")["retentionConfiguration"]["icebergConfiguration"]
    assert retention == {"cleanExpiredFiles": True}


def test_another_sync_that_turns_them_on_at_the_same_time_does_no_harm(cloud: Cloud) -> None:
    create_table(cloud)
    other_sync = iter([lambda: create(cloud, "compaction")])
    before(cloud.access, "glue", "CreateTableOptimizer", lambda _: next(other_sync, lambda: None)())

    [report] = turn_on(cloud)

    assert report.failure is None
    assert report.figures == {"optimizers": 2}
    assert configuration(cloud, "compaction") == {"roleArn": f"{ROLE}-of-others"}


def test_one_table_that_cannot_have_them_does_not_stop_the_others(cloud: Cloud) -> None:
    create_table(cloud)
    gone = TableName("shop", "gone")

    failed, done = turn_on(cloud, gone, ORDERS)

    assert failed.failure is not None
    assert "shop.gone" in failed.failure.message
    assert done.figures == {"optimizers": 3}


def test_many_tables_are_asked_for_in_few_requests(cloud: Cloud) -> None:
    tables = [TableName("shop", f"table_{number}") for number in range(25)]
    for table in tables:
        create_table(cloud, table)
    asked: list[int] = []
    before(cloud.access, "glue", "BatchGetTableOptimizer", asked.append)

    assert [report.figures for report in turn_on(cloud, *tables)] == [{"optimizers": len(TYPES)}] * len(tables)
    assert len(asked) == 3
