"""`delete-rows` of a Hive table with its archive and rejects, killed at any step: repeated, it leaves nothing."""

import random
from pathlib import Path

import pytest

from integration_tests.archive.replays import ARCHIVE, Replays, difference
from integration_tests.erasure.deletions import Deleted, Deletions
from integration_tests.erasure.oracle import traces
from integration_tests.erasure.test_elsewhere import (
    HIVE,
    ODD,
    OTHER_PEOPLE,
    PERSON,
    SCHEMA,
    SECRET,
    complete,
    rows_of_others,
    whole,
)
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_stream
from integration_tests.harness.runs.commands import Ran
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import Warehouse

REPLACING = [
    KillPoint(moment, step)
    for step in (
        "destination_datalake.archive.plan:ReplayProgress.save",
        "destination_datalake.tables.iceberg.rebuild:IcebergRebuild.clone",
        "destination_datalake.tables.iceberg.rebuild:IcebergRebuild.take_over",
        "destination_datalake.tables.hive.rebuild:HiveRebuild.clone",
        "destination_datalake.tables.hive.rebuild:HiveRebuild.take_over",
        "destination_datalake.sync.landing:Landing.publish",
    )
    for moment in ("before", "after")
]
ERASING = [
    KillPoint(moment, step)
    for step in (
        "destination_datalake.erasure.ledger:Ledger.begin",
        "destination_datalake.erasure.command:Erasure._displace_replay",
        "destination_datalake.tables.iceberg.erasure.erase:TableErasure.run",
        "destination_datalake.erasure.objects:Objects.erase",
        "destination_datalake.erasure.ledger:Ledger.finish",
    )
    for moment in ("before", "after")
]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_a_replay_and_an_erasure_end_after_any_kill_of_each_other(
    lake: Lake, platform: Platform, launch: WarmLaunch, tmp_path: Path, seed: int
) -> None:
    """Whichever of them was killed first and second, each ends once it is run again, and nobody is left or missing."""
    draw = random.Random(seed)
    kind = draw.choice([TABLE_KINDS[0], *HIVE[:2]])
    warehouse, orders = Warehouse(lake, platform, kind), configured_stream("orders", SCHEMA)
    warehouse.sync([orders], [*ODD, *OTHER_PEOPLE, complete()], **ARCHIVE)
    config, deletions, replays = warehouse.config(**ARCHIVE), Deletions(launch, tmp_path), Replays(launch, tmp_path)
    before = rows_of_others(whole(lake))

    def erase(killed_at: KillPoint | None = None) -> Deleted:
        return deletions.run(config, [PERSON], killed_at=killed_at)

    def replace(killed_at: KillPoint | None = None) -> Ran:
        return replays.run(config, "--stream", "orders", "--replace", killed_at=killed_at)

    for act in draw.sample(["erase", "replace"], 2):
        killed = erase(draw.choice(ERASING)) if act == "erase" else replace(draw.choice(REPLACING))
        assert killed.exit_code in (-9, 0, 1), killed
        assert killed.exit_code != 1 or "Run the same `delete-rows` command again" in killed.stderr, killed
    erased = erase()
    replaced = replace()

    assert (erased.exit_code, erased.report["found_afterwards"]) == (0, 0), erased
    assert replaced.exit_code == 0, replaced
    assert traces(lake.s3, lake.bucket, SECRET) == []
    assert difference(before, whole(lake)) == []
    assert {name for _, name in lake.tables() if name.startswith("orders")} == {"orders"}


OBJECTS = "destination_datalake.erasure.objects:Objects"
ERASURE = "destination_datalake.erasure"

STEPS = (
    f"{OBJECTS}.find",
    f"{OBJECTS}.erase",
    f"{OBJECTS}._rewrite",
    f"{OBJECTS}._run",
    f"{ERASURE}.tables:HiveTarget.finish",
    f"{ERASURE}.tables:HiveTarget.groups",
    f"{ERASURE}.ledger:Ledger.begin",
    f"{ERASURE}.ledger:Ledger.append",
    f"{ERASURE}.ledger:Ledger.finish",
    f"{ERASURE}.targets:_Bucket.delete",
    f"{ERASURE}.targets:_Bucket.delete_lone_markers",
    "destination_datalake.spark.engine:Engine.run",
)

POINTS = [
    KillPoint(moment, step, call)
    for step in STEPS
    for call in ((1, 2, 3) if "_run" in step or "Engine" in step or "_rewrite" in step else (1,))
    for moment in ("before", "after")
]


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=str)
@pytest.mark.parametrize("table_kind", HIVE[:2], ids=lambda kind: kind.name)
def test_an_erasure_that_is_killed_is_finished_by_repeating_it(
    lake: Lake, platform: Platform, launch: WarmLaunch, tmp_path: Path, table_kind: TableKind, point: KillPoint
) -> None:
    """In a bucket with versioning; a sync comes in between."""
    lake.s3.put_bucket_versioning(Bucket=lake.bucket, VersioningConfiguration={"Status": "Enabled"})
    warehouse, orders = Warehouse(lake, platform, table_kind), configured_stream("orders", SCHEMA)
    warehouse.sync([orders], [*ODD, *OTHER_PEOPLE, complete()], **ARCHIVE)
    warehouse.sync([orders], [*OTHER_PEOPLE[:3], *ODD[:2], complete()], **ARCHIVE)
    config, deletions = warehouse.config(**ARCHIVE), Deletions(launch, tmp_path)
    before = rows_of_others(whole(lake))

    killed = deletions.run(config, [PERSON], killed_at=point)
    warehouse.sync([orders], [OTHER_PEOPLE[0], complete()], **ARCHIVE)
    done = deletions.run(config, [PERSON])

    assert killed.exit_code in (-9, 0), killed
    assert (done.exit_code, done.report["found_afterwards"], done.report["complete"]) == (0, 0, True), done
    assert traces(lake.s3, lake.bucket, SECRET) == []
    after = whole(lake)
    missing = [row for row in difference(before, after) if row[0] == "missing"]
    assert (missing, after.num_rows) == ([], before.num_rows + 1)
    assert SECRET not in after["name"].to_pylist()
    assert Replays(launch, tmp_path).run(config, "--stream", "orders").exit_code == 0
    assert difference(after, whole(lake, "orders__replay")) == []
