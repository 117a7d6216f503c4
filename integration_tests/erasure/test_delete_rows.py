"""`delete-rows`: afterwards no object of the bucket has the rows, and all other rows are as they were."""

import json
import random
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from emulated_aws.account import Account

from integration_tests.archive.replays import difference, maintain
from integration_tests.erasure.deletions import Deleted, Deletions
from integration_tests.erasure.oracle import objects_with
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.launch import COMMAND
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema
from integration_tests.permissions.scenarios import iam_policy

pytestmark = pytest.mark.share(2)

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


def rows_without(rows: pa.Table, ids: list[int]) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows["user_id"], value_set=pa.array(ids, rows["user_id"].type))))


def test_spark_of_the_command_encrypts_the_files_that_it_writes(warehouse: Warehouse, tmp_path: Path) -> None:
    """Spark writes IDs of more than 1 MiB to local files, which remain if the command is killed."""
    warehouse.sync([ORDERS], orders(1, 2))
    config, ids, events = tmp_path / "config.json", tmp_path / "ids.txt", tmp_path / "events"
    events.mkdir()
    properties = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.eventLog.compress": "false",
    }
    config.write_text(json.dumps({**warehouse.config(), "spark": {"mode": "local", "conf": properties}}))
    ids.write_text(f"{people(1)[0]}\n")

    command = [COMMAND, "delete-rows", "--config", str(config), "--all", "--column", "user_id", "--ids-file", str(ids)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    assert done.returncode == 0, done.stderr
    logged = [json.loads(line) for log in events.rglob("events_*") for line in log.read_text().splitlines()]
    [environment] = [event for event in logged if event["Event"] == "SparkListenerEnvironmentUpdate"]
    assert environment["Spark Properties"]["spark.io.encryption.enabled"] == "true"


def test_no_object_has_the_rows_and_all_others_are_as_they_were(warehouse: Warehouse, deletions: Deletions) -> None:
    lake = warehouse.lake
    for sync in range(3):
        warehouse.sync([ORDERS], orders(*range(10 * sync, 10 * sync + 10)))
    before, ids = whole(lake), people(3, 14, 15, 99)
    assert objects_with(lake.s3, lake.bucket, ids)

    done = deletions.run(warehouse.config(), ids)

    assert done.exit_code == 0, done
    # It may speak of tables that other tests have left in the same Glue, but not of this one's.
    assert lake.bucket not in done.stderr
    assert objects_with(lake.s3, lake.bucket, ids) == {}
    assert difference(rows_without(before, ids), whole(lake)) == []
    assert (done.report["complete"], done.report["found_afterwards"]) == (True, 0)
    assert (done.report["ids"], done.report["ids_with_rows"]) == (4, 3)
    assert "This run found 3 of 4 IDs." in done.lines
    place = done.place(f"Iceberg table {lake.database}.orders")
    assert (place["objects_found"], place["rows_removed"], place["objects_searched"]) == (2, 3, 3)
    assert [entry["outcome"] for entry in place["objects"]] == ["rewritten", "rewritten"]
    assert place["snapshots_expired"] > 0


def test_a_dry_run_changes_nothing_and_says_what_would_be_erased(warehouse: Warehouse, deletions: Deletions) -> None:
    lake = warehouse.lake
    warehouse.sync([ORDERS], orders(*range(10)))
    before = lake.objects()

    done = deletions.run(warehouse.config(), people(3), "--dry-run", target=("--stream", "orders"))

    assert (done.exit_code, done.stderr) == (0, ""), done
    assert lake.objects() == before
    assert "This run found 1 of 1 IDs." in done.lines
    assert done.lines[0].startswith(f"Iceberg table {lake.database}.orders: 1 rows would be removed from 1 objects")
    assert [entry["outcome"] for entry in done.place(f"Iceberg table {lake.database}.orders")["objects"]] == ["found"]


@pytest.mark.parametrize("arguments", [("--dry-run",), ()], ids=["dry run", "run"])
def test_partitions_of_another_name_do_not_reveal_ids(
    warehouse: Warehouse, deletions: Deletions, arguments: tuple[str, ...]
) -> None:
    by_id = {"stream": "orders", "partition_by": [{"source": "user_id", "transform": "identity", "name": "pk"}]}
    config = warehouse.config(streams=[by_id], partitioning="NO PARTITIONING")
    assert warehouse.platform.write(config, configured_catalog(ORDERS), orders(1, 2)).exit_code == 0
    assert any(f"/pk={FIRST + 1}/" in key for key in warehouse.lake.objects())

    done = deletions.run(config, people(1), *arguments)

    assert done.exit_code == 0, done
    output = "\n".join((*done.lines, done.stderr, json.dumps(done.report, ensure_ascii=False)))
    assert "/pk=…/" in output
    assert str(FIRST + 1) not in output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"column": "nobody", "target": ("--stream", "orders")}, "--column nobody: table "),
        ({"target": ("--stream", "shop.orders")}, "--stream shop.orders: this configuration has no table"),
        ({"target": ("--table", "orders")}, "--table orders: the table does not exist"),
        ({"target": ("--table", ".orders")}, "--table .orders: the table does not exist"),
        ({"column": "user_idd"}, "Did you mean user_id"),
        ({"column": "user"}, "this column has type struct"),
        (
            {"target": ("--all", "--report", "/nowhere/erased.html")},
            "Cannot write the report to /nowhere/erased.html (--report): No such file or directory. "
            "Nothing was changed.",
        ),
    ],
)
@pytest.mark.share(1)
def test_what_cannot_be_done_is_said_and_nothing_is_changed(
    warehouse: Warehouse, deletions: Deletions, arguments: dict[str, Any], problem: str
) -> None:
    warehouse.sync([ORDERS], orders(1, 2))
    before = warehouse.lake.objects()

    done = deletions.run(warehouse.config(), people(1), **arguments)

    assert (done.exit_code, done.lines) == (1, []), done
    assert problem in done.stderr
    assert warehouse.lake.objects() == before


@pytest.mark.slow
def test_the_report_may_be_a_page(warehouse: Warehouse, deletions: Deletions, tmp_path: Path) -> None:
    warehouse.sync([ORDERS], orders(1, 2))
    page = tmp_path / "erased.html"

    done = deletions.run(warehouse.config(), people(1), "--report", str(page))

    assert done.exit_code == 0, done
    text = page.read_text()
    assert "Complete: a second search found no object with these rows" in text
    assert str(FIRST + 1) not in text
    assert "<script" not in text


_KILLS = [
    KillPoint(moment, function)
    for function in (
        "destination_datalake.erasure.ledger:Ledger.begin",
        "destination_datalake.erasure.ledger:Ledger.mark_for_deletion",
        "destination_datalake.tables.iceberg.commit:TableOperations.commit",
        "destination_datalake.tables.iceberg.erasure.erase:TableErasure._finish",
        "destination_datalake.tables.iceberg.maintenance.references:Deletion.delete",
        "destination_datalake.erasure.ledger:Ledger.finish",
    )
    for moment in ("before", "after")
]


@pytest.mark.slow
@pytest.mark.parametrize("point", _KILLS, ids=str)
def test_a_process_that_is_killed_is_gone_on_with(warehouse: Warehouse, deletions: Deletions, point: KillPoint) -> None:
    lake = warehouse.lake
    dedup = configured_stream("orders", SCHEMA, mode="append_dedup", primary_key=["user_id"])
    warehouse.sync([dedup], orders(*range(8)))
    warehouse.sync([dedup], orders(*range(4, 12)))
    before, ids = whole(lake), people(1, 5, 11)

    killed = deletions.run(warehouse.config(), ids, killed_at=point)
    repeated = deletions.run(warehouse.config(), ids)

    assert killed.exit_code == -9, killed
    assert repeated.exit_code == 0, repeated
    assert objects_with(lake.s3, lake.bucket, ids) == {}
    assert difference(rows_without(before, ids), whole(lake)) == []


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["append", "append_dedup", "overwrite"])
def test_a_sync_that_runs_meanwhile_ends_well(warehouse: Warehouse, deletions: Deletions, mode: str) -> None:
    lake, ids = warehouse.lake, people(2, 5)
    warehouse.sync([ORDERS], orders(*range(4)))
    more: dict[str, Any] = {"overwrite": {"mode": "append", "generation": 2, "minimum": 2}}.get(mode, {"mode": mode})
    keys: dict[str, Any] = {"primary_key": ["user_id"]} if mode == "append_dedup" else {}
    stream = configured_stream("orders", SCHEMA, **more, **keys)

    with warehouse.start([stream], flush_interval_seconds=1) as running:
        running.send([record("orders", user(5)), record("orders", user(6)), state("orders", 1)])
        running.wait_for_state()
        done = deletions.run(warehouse.config(), ids)
        running.send([record("orders", user(7)), state("orders", 2), status("orders", "COMPLETE")])
        run = running.close()

    assert (run.exit_code, run.errors) == (0, []), run.report()
    assert done.exit_code == 0, done
    assert objects_with(lake.s3, lake.bucket, ids) == {}
    expected = [6, 7] if mode == "overwrite" else [0, 1, 3, 6, 7]
    assert sorted(row["user_id"] - FIRST for row in lake.rows(lake.database, "orders")) == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_erasures_compactions_and_a_sync_at_the_same_time_do_each_other_no_harm(
    warehouse: Warehouse, deletions: Deletions, launch: WarmLaunch, tmp_path: Path, seed: int
) -> None:
    """Two requests have people in common. Whichever of them was in another's way ends its work when it is repeated."""
    lake, config, chance = warehouse.lake, warehouse.config(), random.Random(seed)
    for sync in range(6):
        warehouse.sync([ORDERS], orders(*range(10 * sync, 10 * sync + 15)))
    before, added = whole(lake), range(1000, 1005)
    requests = [people(*chance.sample(range(65), 12)) for _ in range(2)]

    def erase(ids: list[int]) -> Deleted:
        time.sleep(3 * chance.random())
        return deletions.run(config, ids)

    def compact() -> None:
        for _ in range(3):
            time.sleep(chance.random())
            maintain(launch, tmp_path, config)

    with ThreadPoolExecutor() as pool:
        erasures = [pool.submit(erase, ids) for ids in requests]
        compaction, sync_ = pool.submit(compact), pool.submit(warehouse.sync, [ORDERS], orders(*added))
        codes = [erasure.result().exit_code for erasure in erasures]
        compaction.result()
        sync_.result()
    repeated = [deletions.run(config, ids) for ids in requests]

    assert {*codes} <= {0, 1}
    assert [deleted.exit_code for deleted in repeated] == [0, 0], repeated
    # Tables of other tests are in the same catalog, at other places.
    messages = [line for deleted in repeated for line in deleted.stderr.splitlines()]
    assert [line for line in messages if not line.startswith("Note: Table ") or f" {lake.database}." in line] == []
    assert objects_with(lake.s3, lake.bucket, [*requests[0], *requests[1]]) == {}
    after = whole(lake)
    is_added = pc.is_in(after["user_id"], value_set=pa.array(people(*added), after["user_id"].type))
    assert difference(rows_without(before, [*requests[0], *requests[1]]), after.filter(pc.invert(is_added))) == []
    assert after.num_rows == rows_without(before, [*requests[0], *requests[1]]).num_rows + len(added)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_a_process_that_is_killed_at_any_time_is_gone_on_with(
    warehouse: Warehouse, deletions: Deletions, seed: int
) -> None:
    """Twice, after as long as chance will have it; then it is left alone. The first id is part of times, too."""
    lake, chance = warehouse.lake, random.Random(seed)
    dedup = configured_stream("orders", SCHEMA, mode="append_dedup", primary_key=["user_id"])
    for sync in range(3):
        warehouse.sync([dedup], orders(*range(4 * sync, 4 * sync + 8)), raw_archive={"enabled": True})
    config = warehouse.config(raw_archive={"enabled": True})
    before, ids = whole(lake), people(*chance.sample(range(1, 16), 4))

    codes = [deletions.run(config, ids, killed_after=chance.uniform(0.1, 6)).exit_code for _ in range(2)]
    done = deletions.run(config, ids)

    assert {*codes} <= {0, -9}, codes
    assert (done.exit_code, done.report["found_afterwards"]) == (0, 0), done
    assert objects_with(lake.s3, lake.bucket, ids) == {}
    assert difference(rows_without(before, ids), whole(lake)) == []


@pytest.mark.slow
def test_the_command_may_do_what_the_printed_policy_allows(
    warehouse: Warehouse, deletions: Deletions, tmp_path: Path
) -> None:
    lake, ids = warehouse.lake, people(2)
    warehouse.sync([ORDERS], orders(*range(4)))
    document = json.loads(iam_policy(tmp_path, warehouse.config(), configured_catalog(ORDERS), "--delete-rows"))
    allowed = Account(lake.endpoint_url).user(*document["Statement"])

    done = deletions.run({**warehouse.config(), "credentials": allowed.credentials}, ids)

    assert done.exit_code == 0, done
    assert objects_with(lake.s3, lake.bucket, ids) == {}
