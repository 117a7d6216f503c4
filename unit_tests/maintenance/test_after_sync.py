"""Maintenance at the end of a sync: as the options ask for, in bounded time, and never the sync's failure."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from botocore.exceptions import ConnectTimeoutError

from destination_datalake.files.rewrite import compact
from destination_datalake.maintenance import after_sync
from destination_datalake.maintenance.after_sync import maintain_after_sync
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.spark.backend import JobFailed
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.table import TableName
from unit_tests.cloud import Cloud, another_client, before, ungoverned
from unit_tests.maintenance.lake import ORDERS, Shop

Reports = Callable[[], list[dict[str, Any]]]
ROLE = "arn:aws:iam::123456789012:role/optimizers"


class Executors:
    """A Spark of one thread, which may be unable to run jobs."""

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure

    def run(self, work: Any, tasks: Sequence[Any]) -> list[Any]:
        assert work is compact
        if self._failure is not None:
            raise self._failure
        return list(work(tasks))


def maintain(shop: Shop, *tables: TableName, executors: Executors | None = None, stops: bool = False) -> None:
    engine: Any = executors or Executors()
    catalog = catalog_of(shop.config, shop.access)
    maintain_after_sync(shop.config, tables or (shop.name(),), catalog, shop.access, engine, lambda: stops)


def small_files(shop: Shop, stream: StreamId = ORDERS) -> None:
    table = shop.open(stream)
    for id_ in range(6):
        shop.commit(table, id_)


@pytest.fixture
def reports(caplog: pytest.LogCaptureFixture) -> Reports:
    """Return the reports in the log so far."""
    caplog.set_level(logging.INFO, "destination_datalake")
    return lambda: [json.loads(record.message) for record in caplog.records if record.message.startswith("{")]


def calls(cloud: Cloud, service: Any) -> list[str]:
    made: list[str] = []
    cloud.access.client(service).meta.events.register(
        f"before-call.{service}", lambda model, **_: made.append(model.name)
    )
    return made


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"maintenance": {"mode": "none"}},
        {"maintenance": {"mode": "connector"}, "table_type": "HIVE"},
        {"maintenance": {"mode": "glue", "role_arn": ROLE}, "table_type": "HIVE"},
    ],
    ids=str,
)
def test_where_nothing_is_to_be_maintained_nothing_is_asked(cloud: Cloud, changes: dict[str, Any]) -> None:
    of_glue, of_s3 = calls(cloud, "glue"), calls(cloud, "s3")

    maintain(Shop(cloud, **changes), TableName("shop", "orders"))

    assert of_glue + of_s3 == []


def test_every_table_of_the_sync_is_maintained(cloud: Cloud, reports: Reports) -> None:
    shop = Shop(cloud, maintenance={"mode": "connector"})
    streams = [StreamId("shop", name) for name in ("orders", "items", "returns")]
    for stream in streams:
        small_files(shop, stream)

    maintain(shop, *map(shop.name, streams))

    assert [(report["table"], report["step"], report["success"]) for report in reports()] == [
        (f"shop.{stream.name}", step, True) for stream in streams for step in ("compaction", "expiry", "orphans")
    ]
    assert [shop.ids(stream) for stream in streams] == [list(range(6))] * 3


@pytest.mark.parametrize("options", [{"mode": "connector"}, {"mode": "glue", "role_arn": ROLE}], ids=str)
def test_a_table_of_others_is_left_to_them(cloud: Cloud, reports: Reports, options: dict[str, Any]) -> None:
    """Syncs write to it all the same."""
    shop = Shop(cloud, maintenance=options)
    small_files(shop)

    def forget_the_owner(_table: Any, transaction: Any) -> None:
        transaction.remove_properties("airbyte.stream-name", "airbyte.stream-namespace", "airbyte.naming")

    TableOperations(shop.name(), ungoverned(shop.access)).commit(forget_the_owner)
    before_ = shop.objects()

    maintain(shop)

    assert reports() == []
    assert shop.objects() == before_


def test_a_table_whose_owner_cannot_be_read_is_left_with_a_warning(
    cloud: Cloud, reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be of others, and the requests that follow may succeed."""
    shop = Shop(cloud, maintenance={"mode": "connector"})
    small_files(shop)
    before_ = shop.objects()

    def fail(number: int) -> None:
        if number == 1:
            raise ConnectTimeoutError(endpoint_url="glue")

    access, engine = another_client(), cast("Any", Executors())
    before(access, "glue", "GetTable", fail)
    maintain_after_sync(shop.config, [shop.name()], catalog_of(shop.config, access), access, engine, lambda: False)

    assert reports() == []
    assert shop.objects() == before_
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1


def test_without_a_spark_that_runs_jobs_the_rest_is_done_and_a_warning_says_so(
    cloud: Cloud, reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(cloud, maintenance={"mode": "connector"})
    small_files(shop)

    maintain(shop, executors=Executors(JobFailed("a worker died")))

    assert [(report["step"], report["success"]) for report in reports()] == [
        ("compaction", False),
        ("expiry", True),
        ("orphans", True),
    ]
    [warning] = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.endswith("Rows and states are safe. The next sync retries the maintenance.")


def test_a_table_that_is_gone_meanwhile_is_a_warning(cloud: Cloud, reports: Reports) -> None:
    shop = Shop(cloud, maintenance={"mode": "connector"})
    small_files(shop)

    maintain(shop, TableName("shop", "gone"), shop.name())

    assert {report["table"]: report["success"] for report in reports()} == {"shop.gone": False, "shop.orders": True}


def test_what_nobody_expects_does_not_fail_the_sync(cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop(cloud, maintenance={"mode": "glue", "role_arn": ROLE})
    small_files(shop)

    def fail(_: int) -> None:
        raise ZeroDivisionError

    access, engine = another_client(), cast("Any", Executors())
    before(access, "glue", "BatchGetTableOptimizer", fail)
    maintain_after_sync(shop.config, [shop.name()], catalog_of(shop.config, access), access, engine, lambda: False)

    [warning] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warning.startswith("Cannot turn on the table optimizers: an unexpected ZeroDivisionError.")


@pytest.mark.parametrize("reason", ["stopped", "late"])
def test_when_time_is_up_nothing_is_begun(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, reports: Reports, reason: str
) -> None:
    shop = Shop(cloud, maintenance={"mode": "connector"})
    small_files(shop)
    before_ = shop.objects()
    monkeypatch.setattr(after_sync, "SECONDS", 600 if reason == "stopped" else -1)

    maintain(shop, stops=reason == "stopped")

    assert shop.objects() == before_
    assert reports() == []


def test_glue_s_optimizers_are_turned_on_for_the_tables_of_the_sync(cloud: Cloud, reports: Reports) -> None:
    shop = Shop(cloud, maintenance={"mode": "glue", "role_arn": ROLE})
    small_files(shop)

    maintain(shop)
    maintain(shop)

    assert [(report["table"], report["step"], report["optimizers"]) for report in reports()] == [
        ("shop.orders", "optimizers", 3)
    ]
