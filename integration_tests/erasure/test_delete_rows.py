"""`delete-rows`: afterwards no object of the bucket has the rows, and all other rows are as they were."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from integration_tests.archive.replays import difference
from integration_tests.erasure.deletions import Deletions
from integration_tests.erasure.oracle import objects_with
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

SCHEMA = object_schema(user_id=INTEGER, name=STRING, user=object_schema(id=STRING))
ORDERS = configured_stream("orders", SCHEMA)
FIRST = 1_700_000_000
"""Ids that are nothing else."""


@pytest.fixture
def warehouse(lake: Lake, platform: Platform) -> Warehouse:
    return Warehouse(lake, platform, TABLE_KINDS[0])


@pytest.fixture
def deletions(launch: WarmLaunch, tmp_path: Path) -> Deletions:
    return Deletions(launch, tmp_path)


def user(number: int) -> Json:
    id_ = FIRST + number
    return {"user_id": id_, "name": f"name of {number}", "user": {"id": f"u{id_}"}}


def people(*numbers: int) -> list[int]:
    return [FIRST + number for number in numbers]


def orders(*numbers: int) -> list[bytes]:
    return [*(record("orders", user(number)) for number in numbers), state("orders", 1), status("orders", "COMPLETE")]


def whole(lake: Lake, table: str = "orders") -> pa.Table:
    return lake.read(lake.database, table)


def others(rows: pa.Table, ids: list[int]) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows["user_id"], value_set=pa.array(ids, rows["user_id"].type))))


def test_no_object_has_the_rows_and_all_others_are_as_they_were(warehouse: Warehouse, deletions: Deletions) -> None:
    lake = warehouse.lake
    for sync in range(3):
        warehouse.sync([ORDERS], orders(*range(10 * sync, 10 * sync + 10)))
    before, ids = whole(lake), people(3, 14, 15, 99)
    assert objects_with(lake.s3, lake.bucket, ids)

    done = deletions.run(warehouse.config(), ids)

    assert (done.exit_code, done.stderr) == (0, ""), done
    assert objects_with(lake.s3, lake.bucket, ids) == {}
    assert difference(others(before, ids), whole(lake)) == []
    assert (done.report["complete"], done.report["found_afterwards"]) == (True, 0)
    place = done.place(f"Iceberg table {lake.database}.orders")
    assert (place["objects_found"], place["rows_removed"], place["objects_searched"]) == (2, 3, 3)
    assert [each["outcome"] for each in place["objects"]] == ["rewritten", "rewritten"]
    assert place["snapshots_expired"] > 0


def test_a_dry_run_changes_nothing_and_says_what_would_be_erased(warehouse: Warehouse, deletions: Deletions) -> None:
    lake = warehouse.lake
    warehouse.sync([ORDERS], orders(*range(10)))
    before = lake.objects()

    done = deletions.run(warehouse.config(), people(3), "--dry-run")

    assert (done.exit_code, done.stderr) == (0, ""), done
    assert lake.objects() == before
    assert done.lines[0].startswith(f"Iceberg table {lake.database}.orders: 1 rows would be removed from 1 objects")
    assert [each["outcome"] for each in done.place(f"Iceberg table {lake.database}.orders")["objects"]] == ["found"]
