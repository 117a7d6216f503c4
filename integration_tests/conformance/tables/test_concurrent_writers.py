"""Another writer changes a table during a sync: the changes of both are there afterwards."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from integration_tests.harness.aws_proxy import Answer, AwsProxy, Request
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

COMPLETE = status("orders", "COMPLETE")
WIDE = 2**40
"""An id for which the column must become wider."""
ICEBERG = [kind for kind in TABLE_KINDS if kind.options["table_type"] == "ICEBERG"]
HIVE = [kind for kind in TABLE_KINDS if kind not in ICEBERG]


class OvertakingAws(AwsProxy):
    """Before every other update of a table another writer is faster: `act` is called with 1, 2, 3, …"""

    def __init__(self, endpoint_url: str, act: Callable[[int], None]) -> None:
        super().__init__(endpoint_url)
        self._act = act
        self._lock = threading.Lock()
        self._updates = 0

    @property
    def overtaken(self) -> int:
        return (self._updates + 1) // 2

    def answer(self, request: Request) -> Answer:
        with self._lock:
            if request.operation == "UpdateTable":
                self._updates += 1
                if self._updates % 2:
                    self._act(self.overtaken)
            return self.pass_on(request)


def orders(generation: int = 1, minimum: int = 0, **properties: object) -> Sequence[dict[str, object]]:
    schema = object_schema(id=INTEGER, **properties)
    return [configured_stream("orders", schema, generation=generation, minimum=minimum)]


def order(id: int, **more: object) -> bytes:
    return record("orders", {"id": id, **more})


def change_the_catalog(warehouse: Warehouse, number: int) -> None:
    """Do what people do to a table in the Glue console: comments, parameters, a column."""
    entry: Any = warehouse.lake.glue_table(warehouse.lake.database, "orders")
    storage = entry["StorageDescriptor"]
    next(column for column in storage["Columns"] if column["Name"] == "id")["Comment"] = f"theirs {number}"
    if warehouse.kind.options["table_type"] == "HIVE":  # There a column is not the catalog's to add.
        storage["Columns"].append({"Name": f"theirs_{number}", "Type": "map<string,int>"})
    changed: Any = {
        **{key: entry[key] for key in ("Name", "TableType", "Retention", "PartitionKeys") if key in entry},
        "Description": f"theirs {number}",
        "Owner": "them",
        "Parameters": {**entry["Parameters"], f"theirs.{number}": "yes"},
        "StorageDescriptor": storage,
    }
    warehouse.lake.glue.update_table(DatabaseName=warehouse.lake.database, TableInput=changed)


def assert_both_changes_are_there(warehouse: Warehouse, aws: OvertakingAws) -> None:
    entry: Any = warehouse.lake.glue_table(warehouse.lake.database, "orders")
    types = warehouse.lake.columns(warehouse.lake.database, "orders")
    comments = {column["Name"]: column.get("Comment") for column in entry["StorageDescriptor"]["Columns"]}
    assert aws.overtaken >= 2
    numbers = range(1, aws.overtaken + 1)
    assert {f"theirs.{number}" for number in numbers} <= entry["Parameters"].keys()
    assert (entry["Description"], entry["Owner"]) == (f"theirs {numbers[-1]}", "them")
    if warehouse.kind.options["table_type"] == "HIVE":
        assert {f"theirs_{number}" for number in numbers} <= types.keys()
    assert comments["id"] == f"theirs {numbers[-1]}"
    assert (types["id"], types["ours"]) == ("bigint", "string")


def test_what_others_change_in_the_catalog_during_a_sync_that_appends_stays(warehouse: Warehouse) -> None:
    """A column is added and one is widened, each time after another writer's comment, parameter and column."""
    warehouse.sync(orders(), [order(1), COMPLETE])

    with OvertakingAws(warehouse.lake.endpoint_url, lambda n: change_the_catalog(warehouse, n)) as aws:
        run = warehouse.sync(
            orders(ours=STRING),
            [order(WIDE, ours="a"), state("orders", 1), COMPLETE],
            endpoint_url=aws.endpoint_url,
        )

    assert len(run.states) == 1
    assert warehouse.ids("orders") == [1, WIDE]
    assert_both_changes_are_there(warehouse, aws)


def test_what_others_change_in_the_catalog_during_a_sync_that_replaces_stays(warehouse: Warehouse) -> None:
    """Also in the very moment in which the new rows are published."""
    warehouse.sync(orders(), [order(1), COMPLETE])

    with OvertakingAws(warehouse.lake.endpoint_url, lambda n: change_the_catalog(warehouse, n)) as aws:
        warehouse.sync(orders(2, 2, ours=STRING), [order(WIDE, ours="a"), COMPLETE], endpoint_url=aws.endpoint_url)

    assert warehouse.ids("orders") == [WIDE]
    assert_both_changes_are_there(warehouse, aws)


@pytest.mark.parametrize("table_kind", ICEBERG, ids=lambda kind: kind.name)
def test_rows_and_columns_that_another_writer_commits_stay(warehouse: Warehouse) -> None:
    """Every commit of the sync finds another writer's snapshot and schema before its own."""
    warehouse.sync(orders(), [order(1), COMPLETE])

    def write(number: int) -> None:
        table = warehouse.lake.iceberg_table(warehouse.lake.database, "orders")
        with table.update_schema() as update:
            update.add_column(f"theirs_{number}", StringType())
        table.append(pa.table({"id": pa.array([-number], table.schema().as_arrow().field("id").type)}))

    with OvertakingAws(warehouse.lake.endpoint_url, write) as aws:
        warehouse.sync(orders(ours=STRING), [order(WIDE, ours="a"), COMPLETE], endpoint_url=aws.endpoint_url)

    assert aws.overtaken >= 2
    assert warehouse.ids("orders") == sorted([1, WIDE, *(-number for number in range(1, aws.overtaken + 1))])
    columns = list(warehouse.lake.columns(warehouse.lake.database, "orders"))
    assert columns[5:] == ["theirs_1", "ours", *(f"theirs_{number}" for number in range(2, aws.overtaken + 1))]


@pytest.mark.parametrize("table_kind", ICEBERG, ids=lambda kind: kind.name)
def test_a_column_that_another_writer_renames_under_a_sync_keeps_its_values_and_a_new_one_takes_the_sync_s(
    warehouse: Warehouse,
) -> None:
    """The files were written for the column as it was, so they are written again."""
    warehouse.sync(orders(), [order(1), COMPLETE])

    def rename(number: int) -> None:
        if number == 1:
            with warehouse.lake.iceberg_table(warehouse.lake.database, "orders").update_schema() as update:
                update.rename_column("id", "theirs")

    with OvertakingAws(warehouse.lake.endpoint_url, rename) as aws:
        run = warehouse.sync(orders(), [order(2), state("orders", 1), COMPLETE], endpoint_url=aws.endpoint_url)

    assert len(run.states) == 1
    assert warehouse.rows("orders") == [{"theirs": None, "id": 2}, {"theirs": 1, "id": None}]


class ForgetfulAws(AwsProxy):
    """Does every update of a table, and lets the answer get lost, so that the client asks for it once more."""

    lost = 0

    def answer(self, request: Request) -> Answer:
        answer = self.pass_on(request)
        if request.operation == "UpdateTable" and answer.status == 200:
            self.lost += 1
            return Answer(500, {}, b'{"__type":"InternalServiceException","message":"try again"}')
        return answer


@pytest.mark.share(1)
@pytest.mark.parametrize("generation", [2, 0], ids=["replaced", "appended"])
def test_an_update_whose_answer_is_lost_is_not_taken_for_another_writer_s(
    warehouse: Warehouse, generation: int
) -> None:
    """It is found to be done when it is asked for again: nothing is there twice, nothing is emptied or cleared away."""
    warehouse.sync(orders(), [order(1), COMPLETE])
    old = warehouse.lake.data_files(warehouse.lake.database, "orders")

    with ForgetfulAws(warehouse.lake.endpoint_url) as aws:
        warehouse.sync(
            orders(generation or 1, generation, ours=STRING),
            [order(2, ours="a"), COMPLETE],
            endpoint_url=aws.endpoint_url,
        )

    assert aws.lost > 0
    assert warehouse.ids("orders") == ([2] if generation else [1, 2])
    assert old.items() <= warehouse.lake.objects().items(), "readers of what was replaced can read on"


@pytest.mark.share(1)
@pytest.mark.parametrize(
    ("newer", "found"), [(orders(3), [1, 2, 3]), (orders(2, 2), [2, 3])], ids=["that appends", "of its generation"]
)
def test_an_overwrite_that_another_sync_takes_over_stops_and_loses_nothing(
    warehouse: Warehouse, newer: Sequence[dict[str, object]], found: Sequence[int]
) -> None:
    """What it had acknowledged goes on with the newer sync; what it sends from then on is refused, with the reason."""
    warehouse.sync(orders(), [order(1), COMPLETE])

    with warehouse.start(orders(2, 2), flush_interval_seconds=1) as older:
        older.send([order(2), state("orders", 1)])
        older.wait_for_states(1)
        warehouse.sync(newer, [order(3), COMPLETE])
        older.send([order(4), state("orders", 2), COMPLETE])
        run = older.close()

    assert run.exit_code == 1
    (error,) = run.errors
    assert error["failure_type"] == "config_error"
    assert "another sync of the stream has taken over this table" in error["message"]
    assert len(run.states) == 1
    assert warehouse.ids("orders") == found


@pytest.mark.parametrize("table_kind", HIVE, ids=lambda kind: kind.name)
def test_a_sync_that_appends_to_a_hive_table_stops_once_another_one_writes_to_it(warehouse: Warehouse) -> None:
    """What it had acknowledged stays, also when the other one makes a column wider; a retry sends the rest."""
    with warehouse.start(orders(), flush_interval_seconds=1) as older:
        older.send([order(1), state("orders", 1)])
        older.wait_for_states(1)
        warehouse.sync(orders(), [order(WIDE), COMPLETE])
        older.send([order(2), state("orders", 2), COMPLETE])
        run = older.close()

    assert run.exit_code == 1
    (error,) = run.errors
    assert "another sync of the stream has taken over this table" in error["message"]
    assert len(run.states) == 1
    assert warehouse.ids("orders") == [1, WIDE]
    warehouse.sync(orders(), [order(2), COMPLETE])
    assert warehouse.ids("orders") == [1, 2, WIDE]
