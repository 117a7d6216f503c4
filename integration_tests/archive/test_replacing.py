"""`replay --replace`: readers, running syncs, kills, other replays, and tables that others have made."""

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from integration_tests.archive import archived
from integration_tests.archive.replays import ARCHIVE, Replays, difference, maintain
from integration_tests.erasure.deletions import Deletions
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.output import ProtocolError
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(3)

SCHEMA = object_schema(id=INTEGER, name=STRING)
ORDERS = configured_stream("orders", SCHEMA)
COMPLETE = status("orders", "COMPLETE")
KINDS = (*TABLE_KINDS, *PARTITIONED_KINDS)


def orders(*ids: int) -> list[bytes]:
    return [record("orders", {"id": id_, "name": f"order {id_}"}) for id_ in ids]


def whole(lake: Lake, table: str = "orders") -> pa.Table:
    return lake.read(lake.database, table)


def synced(warehouse: Warehouse, syncs: int = 3) -> pa.Table:
    """Run syncs of two records each; return the table's rows."""
    for number in range(syncs):
        warehouse.sync([ORDERS], [*orders(2 * number, 2 * number + 1), COMPLETE], **ARCHIVE)
    return whole(warehouse.lake)


def test_readers_always_see_all_rows(warehouse: Warehouse, replays: Replays) -> None:
    before, seen, ended = synced(warehouse), set[int](), threading.Event()

    def poll() -> None:
        while not ended.is_set():
            seen.add(whole(warehouse.lake).num_rows)

    with ThreadPoolExecutor(1) as readers:
        reader = readers.submit(poll)
        replaced = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders", "--replace")
        ended.set()
        reader.result()

    assert replaced.exit_code == 0, replaced
    assert seen == {before.num_rows}
    assert difference(before, whole(warehouse.lake)) == []


def test_rows_that_another_engine_has_deleted_come_back_only_if_gaps_are_accepted(
    lake: Lake, platform: Platform, replays: Replays
) -> None:
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    before = synced(warehouse)
    lake.iceberg_table(lake.database, "orders").delete("id < 3")
    damaged, config = whole(lake), warehouse.config(**ARCHIVE)

    counted = replays.run(config, "--stream", "orders", "--replace", "--accept-gaps", "--dry-run")
    refused = replays.run(config, "--stream", "orders", "--replace")

    assert counted.exit_code == 0, counted
    assert counted.lines[-2].endswith(".orders would lose 0 rows that the archive does not contain.")
    assert "would regain up to 3 rows that it no longer contains: 2 of sync " in counted.lines[-1]
    assert ", 1 of sync " in counted.lines[-1]
    assert refused.exit_code == 1
    assert "2 rows of sync" in refused.stderr
    assert "but the table does not." in refused.stderr
    assert difference(damaged, whole(lake)) == []
    accepted = replays.run(config, "--stream", "orders", "--replace", "--accept-gaps")
    assert accepted.exit_code == 0, accepted
    assert difference(before, whole(lake)) == []


def test_what_a_sync_commits_meanwhile_is_kept(warehouse: Warehouse, replays: Replays) -> None:
    """A Hive table has one writer: the sync is fenced, and what it acknowledged is in the table."""
    synced(warehouse)
    with warehouse.start([ORDERS], flush_interval_seconds=1, **ARCHIVE) as running:
        running.send([*orders(100), state("orders", 1)])
        running.wait_for_states(1)
        replaced = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders", "--replace")
        running.send([*orders(101), state("orders", 2), COMPLETE])
        run = running.close()

    assert replaced.exit_code == 0, replaced
    acknowledged = [100, 101][: len(run.states)]
    assert len(acknowledged) == (2 if warehouse.kind.name == "iceberg" else 1)
    assert warehouse.ids("orders") == [*range(6), *acknowledged]
    assert run.exit_code == (0 if len(acknowledged) == 2 else 1), run.report()


REPLAYER = "destination_datalake.replay.replayer:Replayer"
PROGRESS = "destination_datalake.archive.plan:ReplayProgress"
POINTS: Sequence[str] = (
    f"{REPLAYER}._resume_or_start",
    f"{REPLAYER}._land",
    f"{REPLAYER}._replace_table",
    f"{PROGRESS}.claim",
    f"{PROGRESS}.save",
    f"{PROGRESS}.save",
    f"{PROGRESS}.require",
    "destination_datalake.sync.landing:Landing._commit",
    "destination_datalake.sync.landing:Landing.publish",
    "destination_datalake.aws.objects:DeferredUpload.publish",
    "destination_datalake.tables.iceberg.rebuild:IcebergRebuild.clone",
    "destination_datalake.tables.iceberg.rebuild:IcebergRebuild.take_over",
    "destination_datalake.tables.iceberg.rebuild:IcebergRebuild.drop",
    "destination_datalake.tables.hive.rebuild:HiveRebuild.clone",
    "destination_datalake.tables.hive.rebuild:HiveRebuild.take_over",
    "destination_datalake.tables.hive.table:HiveTable.take_over",
    "destination_datalake.tables.iceberg.table:IcebergTable.commit",
    "destination_datalake.tables.hive.table:HiveTable.commit",
)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(50))
def test_a_replay_that_is_killed_goes_on_and_loses_nothing(
    lake: Lake, platform: Platform, replays: Replays, seed: int
) -> None:
    draw = random.Random(seed)
    kind = draw.choice(KINDS)
    warehouse = Warehouse(lake, platform, kind)
    keyed = kind.name == "iceberg" and draw.random() < 0.5
    if keyed:
        stream = configured_stream("orders", SCHEMA, mode="append_dedup", primary_key=["id"])
        for number in range(3):
            warehouse.sync([stream], [*orders(number, number + 1), COMPLETE], **ARCHIVE)
        before = whole(lake)
    else:
        before = synced(warehouse)
    where = ["--replace"] if draw.random() < 0.7 else []
    kills = []

    for _ in range(draw.randint(1, 3)):
        point = KillPoint(draw.choice(("before", "after")), draw.choice(POINTS), draw.randint(1, 4))
        killed = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders", *where, killed_at=point)
        kills.append((str(point), killed))
        assert difference(before, whole(lake)) == [], kills
    replayed = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders", *where)

    assert replayed.exit_code == 0, (kills, replayed)
    assert difference(before, whole(lake)) == [], kills
    if "--replace" not in where:
        assert difference(before, whole(lake, "orders__replay")) == [], kills


def test_of_two_replays_into_one_table_it_has_the_rows_once(warehouse: Warehouse, replays: Replays) -> None:
    before = synced(warehouse)
    config = warehouse.config(**ARCHIVE)

    with ThreadPoolExecutor(2) as pool:
        ran = [pool.submit(replays.run, config, "--stream", "orders") for _ in range(2)]
        codes = sorted(future.result().exit_code for future in ran)
    last = replays.run(config, "--stream", "orders")

    assert codes in ([0, 0], [0, 1]), [future.result() for future in ran]
    assert last.exit_code == 0, last
    assert difference(before, whole(warehouse.lake, "orders__replay")) == []


def test_table_of_an_unknown_replay_is_refused_however_often(warehouse: Warehouse, replays: Replays) -> None:
    """A lifecycle rule for the archive has deleted the progress of the replay that created the table."""
    before, lake, config = synced(warehouse, 1), warehouse.lake, warehouse.config(**ARCHIVE)
    assert replays.run(config, "--stream", "orders").exit_code == 0
    for key in lake.objects(f"{archived.folder(lake, 'orders')}replay/"):
        lake.s3.delete_object(Bucket=lake.bucket, Key=key)

    for _ in range(2):
        refused = replays.run(config, "--stream", "orders")
        assert refused.exit_code == 1
        assert "does not belong to a replay that can resume" in refused.stderr
    assert difference(before, whole(lake, "orders__replay")) == []


def test_replay_into_a_dropped_table_starts_again_whenever_it_is_killed(warehouse: Warehouse, replays: Replays) -> None:
    before, lake, config = synced(warehouse, 1), warehouse.lake, warehouse.config(**ARCHIVE)
    assert replays.run(config, "--stream", "orders").exit_code == 0
    lake.drop_table(lake.database, "orders__replay")
    replays.run(config, "--stream", "orders", killed_at=KillPoint("before", f"{PROGRESS}.require"))

    assert replays.run(config, "--stream", "orders").exit_code == 0
    assert difference(before, whole(lake, "orders__replay")) == []


def test_foreign_table_with_the_name_of_a_rebuild_is_not_dropped(
    warehouse: Warehouse, replays: Replays, launch: WarmLaunch
) -> None:
    before, lake, config = synced(warehouse, 1), warehouse.lake, warehouse.config(**ARCHIVE)
    foreign: Any = {"Name": "orders__rebuild", "StorageDescriptor": {"Columns": [], "Location": "s3://elsewhere/table"}}
    lake.glue.create_table(DatabaseName=lake.database, TableInput=foreign)

    replaced = replays.run(config, "--stream", "orders", "--replace")
    erased = Deletions(launch, replays.folder).run(config, [1], column="id")

    assert replaced.exit_code == 1
    assert "was not created by a replay of table" in replaced.stderr.replace("\n", " ")
    assert (erased.exit_code, warehouse.ids("orders")) == (0, [0])
    assert lake.glue.get_table(DatabaseName=lake.database, Name="orders__rebuild")
    assert before.num_rows == 2


def test_a_replay_is_no_table_of_a_stream(warehouse: Warehouse, replays: Replays) -> None:
    before = synced(warehouse, 1)
    config = warehouse.config(**ARCHIVE)
    assert replays.run(config, "--stream", "orders").exit_code == 0

    preserving = {"naming": {"style": "preserve"}}
    namesake = warehouse.attempt([configured_stream("orders__replay", SCHEMA)], [], **preserving)
    assert "reserved for tables that the command `replay` creates" in namesake.errors[0]["message"]
    second_stream = configured_stream("others", SCHEMA)
    warehouse.sync([second_stream], [record("others", {"id": 1}), status("others", "COMPLETE")])
    into_a_stream_s = replays.run(config, "--stream", "orders", "--into", "others")

    assert into_a_stream_s.exit_code == 1
    assert "Table" in into_a_stream_s.stderr
    assert warehouse.ids("others") == [1]
    assert difference(before, whole(warehouse.lake, "orders__replay")) == []


def test_a_table_with_rows_that_the_archive_lacks_is_not_replaced(warehouse: Warehouse, replays: Replays) -> None:
    warehouse.sync([ORDERS], [*orders(1, 2), COMPLETE])
    warehouse.sync([ORDERS], [*orders(3), COMPLETE], **ARCHIVE)
    config = warehouse.config(**ARCHIVE)

    refused = replays.run(config, "--stream", "orders", "--replace")
    assert refused.exit_code == 1
    assert "contained rows before its first archived sync" in refused.stderr
    assert warehouse.ids("orders") == [1, 2, 3]
    accepted = replays.run(config, "--stream", "orders", "--replace", "--accept-gaps")

    assert accepted.exit_code == 0, accepted
    assert warehouse.ids("orders") == [3]


def test_duplicates_in_one_table_do_not_hide_other_rows_in_the_other(
    lake: Lake, platform: Platform, replays: Replays
) -> None:
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    rows, config = synced(warehouse, 1), warehouse.config(**ARCHIVE)
    assert (
        replays.run(config, "--stream", "orders")
        .lines[-2]
        .endswith(f"contains the same rows as table {lake.database}.orders, by raw ID.")
    )
    replayed, table = lake.iceberg_table(lake.database, "orders__replay"), lake.iceberg_table(lake.database, "orders")
    replayed.append(rows.slice(0, 1).cast(replayed.schema().as_arrow()))
    foreign = rows.slice(0, 1).set_column(0, "_airbyte_raw_id", [["a row of another engine"]])
    table.append(foreign.cast(table.schema().as_arrow()))

    compared = replays.run(config, "--stream", "orders")

    assert [line for line in compared.lines if line.startswith("Difference: ")] == [
        "Difference: The table contains 1 row of other writers, or of syncs without an archive.",
        f"Difference: Table {lake.database}.orders__replay contains 1 row more than once.",
    ]


def test_pending_rows_do_not_hide_more_missing_rows_than_they_can_replace(
    lake: Lake, platform: Platform, replays: Replays
) -> None:
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    config = warehouse.config(**ARCHIVE)
    stream = configured_stream("orders", SCHEMA, mode="append_dedup", primary_key=["id"])
    warehouse.sync([stream], [*orders(1, 2, 3), COMPLETE], **ARCHIVE)
    killed = Platform(replays.folder, replays.launch.killed_at(KillPoint("before", POINTS[8])))
    with suppress(ProtocolError):
        Warehouse(lake, killed, warehouse.kind).attempt([stream], [*orders(1), COMPLETE], **ARCHIVE)

    equal = replays.run(config, "--stream", "orders")
    lake.iceberg_table(lake.database, "orders__replay").delete("id < 3")
    lacking = replays.run(config, "--stream", "orders")

    assert equal.lines[-2].startswith("Found no difference"), equal
    assert "so not all rows were compared" in equal.lines[-2]
    assert [line.partition(" of sync")[0] for line in lacking.lines if line.startswith("Difference: ")] == [
        "Difference: The table contains 2 rows"
    ], lacking


def test_sync_without_an_archive_in_between_is_named(warehouse: Warehouse, replays: Replays) -> None:
    synced(warehouse, 1)
    warehouse.sync([ORDERS], [*orders(7), COMPLETE])
    config = warehouse.config(**ARCHIVE)

    refused = replays.run(config, "--stream", "orders", "--replace")
    replayed = replays.run(config, "--stream", "orders")

    assert refused.exit_code == 1
    assert "wrote 1 row, but did not archive its records." in refused.stderr
    assert warehouse.ids("orders") == [0, 1, 7]
    assert replayed.exit_code == 0, replayed
    assert "is incomplete" in replayed.lines[0]
    assert "Difference: The table contains 1 row of other writers, or of syncs without an archive." in (replayed.lines)


@pytest.mark.slow
def test_deletions_of_a_sync_without_an_archive_are_not_undone(
    lake: Lake, platform: Platform, replays: Replays
) -> None:
    """None of its rows is in the table: one was a deletion, and an archived sync has replaced the other one."""
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    schema = object_schema(id=INTEGER, name=STRING, _ab_cdc_deleted_at=STRING)
    stream = configured_stream("orders", schema, mode="append_dedup", primary_key=["id"])
    warehouse.sync([stream], [*orders(1, 2, 3), COMPLETE], **ARCHIVE)
    deleted = record("orders", {"id": 1, "_ab_cdc_deleted_at": "2024-01-02T00:00:00Z"})
    warehouse.sync([stream], [deleted, *orders(2), COMPLETE])
    warehouse.sync([stream], [*orders(2), COMPLETE], **ARCHIVE)

    refused = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders", "--replace")

    assert refused.exit_code == 1, refused
    assert "did not archive its records" in refused.stderr
    assert warehouse.ids("orders") == [2, 3]


def test_dry_run_counts_the_rows_that_gaps_cost(warehouse: Warehouse, replays: Replays) -> None:
    warehouse.sync([ORDERS], [*orders(1, 2), COMPLETE])
    warehouse.sync([ORDERS], [*orders(3), COMPLETE], **ARCHIVE)

    counted = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders", "--dry-run", "--accept-gaps")

    assert counted.exit_code == 0, counted
    assert counted.lines[-2].endswith(".orders would lose 2 rows that the archive does not contain.")
    assert counted.lines[-1].endswith(".orders would regain up to 0 rows that it no longer contains.")
    assert warehouse.ids("orders") == [1, 2, 3]


def test_rows_of_a_dropped_table_come_back_into_another_table_or_if_gaps_are_accepted(
    warehouse: Warehouse, replays: Replays
) -> None:
    lake, config = warehouse.lake, warehouse.config(**ARCHIVE)
    synced(warehouse, 1)
    lake.drop_table(lake.database, "orders")
    warehouse.sync([ORDERS], [*orders(7), COMPLETE], **ARCHIVE)

    replayed = replays.run(config, "--stream", "orders")
    refused = replays.run(config, "--stream", "orders", "--replace")

    assert replayed.exit_code == 0, replayed
    assert any(line.startswith("Note: Another table had this name before sync") for line in replayed.lines)
    assert warehouse.ids("orders__replay") == [0, 1, 7]
    assert refused.exit_code == 1
    assert "2 rows of sync" in refused.stderr
    assert warehouse.ids("orders") == [7]
    assert replays.run(config, "--stream", "orders", "--replace", "--accept-gaps").exit_code == 0
    assert warehouse.ids("orders") == [0, 1, 7]


@pytest.mark.slow
@pytest.mark.parametrize("ids", [None, 1], ids=["without ids", "as PyAirbyte sends them"])
def test_overwrite_that_was_killed_after_its_publication_does_not_revive_older_rows(
    warehouse: Warehouse, replays: Replays, ids: int | None
) -> None:
    stream = configured_stream("orders", SCHEMA, mode="overwrite", generation=ids, minimum=ids, sync_id=ids)
    warehouse.sync([stream], [*orders(1, 2), COMPLETE], **ARCHIVE)
    point = KillPoint("before", "destination_datalake.archive.ledger:ArchiveLedger.end")
    platform = Platform(replays.folder, replays.launch.killed_at(point))
    with suppress(ProtocolError):
        Warehouse(warehouse.lake, platform, warehouse.kind).attempt([stream], [*orders(3), COMPLETE], **ARCHIVE)
    assert warehouse.ids("orders") == [3]

    replaced = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders", "--replace")

    assert replaced.exit_code == 0, replaced
    assert warehouse.ids("orders") == [3]


def test_a_table_whose_content_was_replaced_is_maintained_as_before(
    lake: Lake, platform: Platform, replays: Replays, launch: WarmLaunch, tmp_path: Path
) -> None:
    """What was made to replace it leaves no metadata of another table among its own."""
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    before = synced(warehouse)
    config = warehouse.config(**ARCHIVE)
    killed_at = KillPoint("before", "destination_datalake.tables.iceberg.rebuild:IcebergRebuild.take_over")
    replays.run(config, "--stream", "orders", "--replace", killed_at=killed_at)
    assert replays.run(config, "--stream", "orders", "--replace").exit_code == 0

    lines = maintain(launch, tmp_path, config)

    assert [line for line in lines if "skipped: " in line] == []
    assert difference(before, whole(lake)) == []


def test_a_table_without_rows_is_replaced(warehouse: Warehouse, replays: Replays) -> None:
    synced(warehouse, 1)
    emptied = configured_stream("orders", SCHEMA, generation=1, minimum=1, sync_id=2)
    warehouse.sync([emptied], [COMPLETE], **ARCHIVE)

    replaced = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders", "--replace")

    assert replaced.exit_code == 0, replaced
    assert warehouse.ids("orders") == []


def test_a_dry_run_changes_nothing(warehouse: Warehouse, replays: Replays) -> None:
    synced(warehouse)
    before = warehouse.lake.objects()

    dry_run = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders", "--dry-run")

    assert dry_run.exit_code == 0, dry_run
    assert "3 syncs, 3 batches and 6 records" in dry_run.lines[-1]
    assert warehouse.lake.objects() == before


def test_a_stream_without_an_archive_is_told(warehouse: Warehouse, replays: Replays) -> None:
    warehouse.sync([ORDERS], [*orders(1), COMPLETE])

    told = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders")

    assert told.exit_code == 1
    assert "contains no archive of this stream" in told.stderr


@pytest.mark.parametrize("table_kind", TABLE_KINDS[:1], ids=lambda kind: kind.name, indirect=True)
def test_a_replacement_with_options_for_other_columns_is_refused(warehouse: Warehouse, replays: Replays) -> None:
    address = object_schema(street=STRING)
    rows = [record("orders", {"id": 1, "address": {"street": "a"}}), state("orders", 1), status("orders", "COMPLETE")]
    warehouse.sync([configured_stream("orders", object_schema(id=INTEGER, address=address))], rows, **ARCHIVE)
    before = warehouse.whole_rows("orders")

    refused = replays.run(warehouse.config(**ARCHIVE, nested="flatten"), "--stream", "orders", "--replace")

    assert refused.exit_code == 1, refused
    assert "Traceback" not in refused.stderr
    assert "does not contain the column address_street of the replayed rows" in refused.stderr.replace("\n", " ")
    assert warehouse.whole_rows("orders") == before
