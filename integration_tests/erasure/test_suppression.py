"""`delete-rows --suppress`: of the people whose rows were erased, later syncs keep a count and nothing else."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from emulated_aws.account import Account, allow, deny

from integration_tests.archive.replays import ARCHIVE, Replays, difference
from integration_tests.erasure.deletions import Deletions
from integration_tests.erasure.oracle import traces
from integration_tests.erasure.test_elsewhere import (
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
from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema
from integration_tests.reports.test_reports import lines_of

pytestmark = pytest.mark.share(1)

ORDERS = configured_stream("orders", SCHEMA)
SUPPRESSED = "DESTINATION_RECORD_SUPPRESSED"


@pytest.fixture
def deletions(launch: WarmLaunch, tmp_path: Path) -> Deletions:
    return Deletions(launch, tmp_path)


def suppressed(lake: Lake) -> list[int]:
    """How many records each sync has rejected for it, by the reports."""
    lines = [line for line in lines_of(lake) if line["type"] == "event"]
    for line in lines:
        kept = line["row_count"] + line["rows_rejected"] + line["rows_skipped"]
        assert kept == line["rows_received"], line
    return [reject["count"] for line in lines for reject in line["rejects"] if reject["reason"] == SUPPRESSED]


@pytest.mark.share(1)
@pytest.mark.parametrize("table_kind", [*TABLE_KINDS, *PARTITIONED_KINDS], ids=lambda kind: kind.name)
def test_later_syncs_keep_a_count_of_the_person_and_nothing_else(
    lake: Lake, platform: Platform, launch: WarmLaunch, deletions: Deletions, tmp_path: Path, table_kind: TableKind
) -> None:
    """In whichever form the id comes: no row, no reject, no archived line. Others are written as they would be."""
    warehouse = Warehouse(lake, platform, table_kind)
    warehouse.sync([ORDERS], [*ODD, *OTHER_PEOPLE, complete()], **ARCHIVE)
    config = warehouse.config(**ARCHIVE)

    done = deletions.run(config, [PERSON], "--suppress")
    before = whole(lake)
    limit = {"rejects": {"max_count": len(OTHER_PEOPLE)}}
    lines = [*ODD[:6], *OTHER_PEOPLE, state("orders", 1), *ODD[6:], state("orders", 2), complete()]
    run = warehouse.sync([ORDERS], lines, **ARCHIVE, **limit)

    assert (done.exit_code, done.report["suppress"]) == (0, True), done
    assert traces(lake.s3, lake.bucket, SECRET) == []
    assert Counter(whole(lake)["name"].to_pylist()) == Counter(2 * before["name"].to_pylist())
    assert len(run.states) == 2
    assert suppressed(lake) == [len(ODD)]
    replayed = Replays(launch, tmp_path).run(config, "--stream", "orders")
    assert replayed.exit_code == 0, replayed
    assert difference(whole(lake), whole(lake, "orders__replay")) == []


@pytest.mark.slow
def test_a_suppression_ends_with_the_folder_of_its_request(
    lake: Lake, platform: Platform, deletions: Deletions
) -> None:
    """A request without --suppress has not begun one."""
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    warehouse.sync([ORDERS], [*OTHER_PEOPLE, complete()])
    assert deletions.run(warehouse.config(), [5]).exit_code == 0
    done = deletions.run(warehouse.config(), [PERSON], "--suppress")
    warehouse.sync([ORDERS], [ODD[0], OTHER_PEOPLE[4], complete()])
    assert suppressed(lake) == [1]

    for key in lake.objects():
        if f"/_deletions/{done.report['request']}/" in key:
            lake.s3.delete_object(Bucket=lake.bucket, Key=key)
    warehouse.sync([ORDERS], [ODD[0], complete()])

    assert suppressed(lake) == [1]
    assert rows_of_others(whole(lake)).num_rows + 1 == whole(lake).num_rows == len(OTHER_PEOPLE) + 1


@pytest.mark.parametrize("column", ["user.id", "id"])
def test_versions_and_deletions_of_a_person_are_rejected_in_a_deduplicated_table(
    lake: Lake, platform: Platform, deletions: Deletions, column: str
) -> None:
    """By the key, or by a field within a column."""
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    time: Json = {"type": "string", "format": "date-time"}
    schema = object_schema(id=INTEGER, user=object_schema(id=INTEGER), n=INTEGER, _ab_cdc_deleted_at=time)
    people = configured_stream("people", schema, mode="append_dedup", primary_key=["id"])

    def person(number: int, n: int, **more: Any) -> bytes:
        return record("people", {"id": number, "user": {"id": number}, "n": n, **more})

    def end() -> bytes:
        return status("people", "COMPLETE")

    warehouse.sync([people], [*(person(number, 0) for number in range(600000, 600004)), end()], **ARCHIVE)
    done = deletions.run(warehouse.config(**ARCHIVE), [600001, 600002], "--suppress", column=column)
    assert done.exit_code == 0, done

    deleted = {"_ab_cdc_deleted_at": "2024-01-01T00:00:00Z"}
    lines = [person(600001, 1), person(600001, 2, **deleted), person(600002, 1), person(600003, 1)]
    warehouse.sync([people], [*lines, person(600000, 2, **deleted), end()], **ARCHIVE)

    assert [(row["id"], row["n"]) for row in lake.rows(lake.database, "people")] == [(600003, 1)]
    assert suppressed(lake) == [3]
    assert traces(lake.s3, lake.bucket, "600001") == traces(lake.s3, lake.bucket, "600002") == []


def test_a_sync_that_cannot_read_whom_to_reject_writes_nothing(
    lake: Lake, platform: Platform, deletions: Deletions
) -> None:
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    warehouse.sync([ORDERS], [*ODD[:1], *OTHER_PEOPLE, complete()])
    done = deletions.run(warehouse.config(), [PERSON], "--suppress")
    before = whole(lake)
    folder = f"lake/_deletions/{done.report['request']}"
    ledger = f"arn:aws:s3:::{lake.bucket}/{folder}"

    def denied(objects: str) -> dict[str, Any]:
        refused = deny("s3:GetObject", resource=f"{ledger}/{objects}")
        user = Account(lake.endpoint_url).user(allow("*"), refused)
        return {"credentials": user.credentials}

    runs = [
        warehouse.attempt([ORDERS], [*ODD[:1], complete()], **denied(pattern))
        for pattern in ("request.json", "hashes/*")
    ]
    lake.s3.put_object(Bucket=lake.bucket, Key=f"{folder}/request.json", Body=b"{")
    runs.append(warehouse.attempt([ORDERS], [*ODD[:1], complete()]))

    assert [run.exit_code for run in runs] == [1, 1, 1]
    assert [run.errors[0]["failure_type"] for run in runs] == ["config_error"] * 3, [run.errors for run in runs]
    assert "Cannot read the suppression requests (`delete-rows --suppress`) from s3://" in str(runs[0].errors)
    assert "s3:GetObject" in str(runs[0].errors)
    assert "Cannot read the suppressed IDs from s3://" in str(runs[1].errors)
    assert "request.json in this folder is not valid" in str(runs[2].errors)
    assert difference(before, whole(lake)) == []


_KILLS = [
    KillPoint(moment, function)
    for function in (
        "destination_datalake.archive.ledger:ArchiveLedger.publish",
        "destination_datalake.rejects.ledger:RejectLedger.publish",
        "destination_datalake.tables.iceberg.commit:TableOperations.commit",
        "destination_datalake.sync.landing:Landing._publish",
    )
    for moment in ("before", "after")
]


@pytest.mark.slow
@pytest.mark.parametrize("point", _KILLS, ids=str)
def test_a_sync_that_is_killed_has_kept_nothing_of_the_person_either(
    lake: Lake, platform: Platform, launch: WarmLaunch, deletions: Deletions, tmp_path: Path, point: KillPoint
) -> None:
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    warehouse.sync([ORDERS], [*ODD, *OTHER_PEOPLE, complete()], **ARCHIVE)
    assert deletions.run(warehouse.config(**ARCHIVE), [PERSON], "--suppress").exit_code == 0
    dying = replace(warehouse, platform=Platform(tmp_path, launch.killed_at(point)))

    with dying.start([ORDERS], **ARCHIVE) as running:
        running.send([*ODD, *OTHER_PEOPLE, state("orders", 1), complete()])
        killed = running.perish()

    assert killed.exit_code == -9, f"the point was not reached\n{killed.report()}"
    assert traces(lake.s3, lake.bucket, SECRET) == []
    warehouse.sync([ORDERS], [*ODD, *OTHER_PEOPLE, complete()], **ARCHIVE)
    assert traces(lake.s3, lake.bucket, SECRET) == []
    assert SECRET not in whole(lake)["name"].to_pylist()
