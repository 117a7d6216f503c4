"""The steps of maintaining a table, one after the other: what they do and report, and what is due after a sync."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from destination_datalake.maintenance.report import StepReport
from destination_datalake.tables.glue.compare_and_set import METADATA
from destination_datalake.tables.iceberg.commit import TableOperations
from destination_datalake.tables.iceberg.file_io import MANIFESTS
from destination_datalake.tables.iceberg.maintenance.cleanup import MAINTAINED_AT
from unit_tests.cloud import BUCKET, Cloud, ungoverned
from unit_tests.maintenance.lake import Shop, run, worn
from unit_tests.tables.iceberg.maintenance.blocks import in_blocks_of

pytestmark = pytest.mark.share(4)


@pytest.fixture
def shop(cloud: Cloud) -> Shop:
    return Shop(cloud)


def test_a_table_is_compacted_its_snapshots_expire_and_its_orphans_are_removed(shop: Shop) -> None:
    worn(shop)

    reports = run(shop.maintainer(), shop.name())

    assert shop.ids() == [0, 1, 2, 3, 4, 5]
    assert [report.failure for report in reports] == [None, None, None]
    assert sum("/data/" in key for key in shop.objects()) == 1
    compaction, expiry, orphans = reports
    assert compaction.figures["files"] == 6
    assert (expiry.figures["files"], expiry.figures["snapshots"] > 6) == (7, True)
    assert orphans.figures["files"] == 1
    assert all(
        report.outcome in ("nothing to compact", "no snapshots expired") or "no orphan files" in report.outcome
        for report in run(shop.maintainer(), shop.name())
    )


def test_a_dry_run_changes_nothing_and_names_each_object(shop: Shop) -> None:
    worn(shop)
    before = shop.objects()

    lines = [line for report in run(shop.maintainer(dry_run=True), shop.name()) for line in report.lines()]

    assert shop.objects() == before
    assert lines[0].startswith("shop.orders compaction: would rewrite 6 files")
    assert "shop.orders expiry: would expire " in lines[1]
    named = {line.strip().removeprefix("s3://lake/") for line in lines if line.startswith("  ")}
    list(shop.maintainer().remove(shop.name()))
    assert before - shop.objects() == named > {"lake/shop/orders/data/lost.parquet"}


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_table_of_format_version_3_is_left_alone(shop: Shop, dry_run: bool) -> None:
    worn(shop)
    location = TableOperations(shop.name(), ungoverned(shop.access)).load().metadata_location
    key = location.removeprefix(f"s3://{BUCKET}/")
    newer = {**json.loads(shop.cloud.objects()[key]), "format-version": 3, "next-row-id": 0}
    shop.put(key, json.dumps(newer).encode())
    METADATA.forget(location)
    before = shop.objects()

    reports = [*run(shop.maintainer(dry_run=dry_run), shop.name()), *shop.maintainer().due(shop.name())]

    assert {report.step for report in reports} == {"compaction", "expiry", "orphans"}
    assert {report.outcome.partition(". ")[0] for report in reports} == {
        "skipped: its format-version is 3, but this connector supports only versions 1 and 2"
    }
    assert [report.failure for report in reports] == [None] * len(reports)
    assert shop.objects() == before


def test_a_step_that_fails_does_not_stop_the_others(shop: Shop, cloud: Cloud) -> None:
    worn(shop)

    with cloud.refusing("DeleteObjects"):
        compaction, expiry, orphans = run(shop.maintainer(), shop.name())

    assert compaction.failure is None
    for report in (expiry, orphans):
        assert report.failure is not None
        assert report.failure.missing is not None
        assert report.failure.missing.action == "s3:DeleteObject"
        assert json.loads(report.log_line())["success"] is False
    assert shop.ids() == [0, 1, 2, 3, 4, 5]
    assert [report.failure for report in run(shop.maintainer(), shop.name())] == [None] * 3
    assert sum("/data/" in key for key in shop.objects()) == 1


def test_a_manifest_with_more_than_its_entries_deletes_nothing_and_is_to_be_reported(shop: Shop) -> None:
    worn(shop)
    table = TableOperations(shop.name(), ungoverned(shop.access)).load()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    [manifest, *_] = [manifest.manifest_path for manifest in snapshot.manifests(table.io)]
    longer = in_blocks_of(2, table.io.new_input(manifest).open().read(), more=b"\0")
    MANIFESTS.forget(manifest)
    shop.put(manifest.removeprefix(f"s3://{BUCKET}/"), longer)
    before = shop.objects()

    reports = list(shop.maintainer().remove(shop.name()))

    assert before <= shop.objects()
    for report in reports:
        assert report.failure is not None
        assert report.failure.type == "system_error"
        assert f"{manifest} cannot be read: " in report.failure.message
        assert "The step stopped and deleted no further objects" in report.failure.message


def test_without_time_nothing_is_begun(shop: Shop) -> None:
    worn(shop)
    before = shop.objects()

    reports = run(shop.maintainer(should_continue=lambda: False), shop.name())

    assert shop.objects() == before
    assert {report.outcome for report in reports} == {"the step reached its time limit; the next run continues"}


def test_a_line_for_logs_is_one_object_of_figures(shop: Shop) -> None:
    worn(shop)

    lines = [json.loads(report.log_line()) for report in run(shop.maintainer(), shop.name())]

    assert [(line["table"], line["step"], line["success"]) for line in lines] == [
        ("shop.orders", "compaction", True),
        ("shop.orders", "expiry", True),
        ("shop.orders", "orphans", True),
    ]
    assert {"snapshots", "refs", "files", "metadata_files", "bytes", "duration_ms"} <= lines[1].keys()


def test_a_table_that_is_left_alone_is_said_with_the_reason(shop: Shop) -> None:
    shop.open()

    def share_files(_table: Any, transaction: Any) -> None:
        transaction.set_properties({"gc.enabled": "false"})

    TableOperations(shop.name(), ungoverned(shop.access)).commit(share_files)

    for report in shop.maintainer().remove(shop.name()):
        line = json.loads(report.log_line())
        assert line["success"] is True
        assert line["outcome"].startswith("skipped: its property gc.enabled is false")


def test_after_a_sync_removal_is_due_once_a_day(shop: Shop) -> None:
    worn(shop)

    def due(hours: int) -> list[str]:
        return [report.step for report in shop.maintainer(timedelta(days=6, hours=hours)).due(shop.name())]

    assert due(0) == ["compaction", "expiry", "orphans"]
    assert due(1) == []
    assert due(23) == []
    assert due(25) == ["expiry", "orphans"]


@pytest.mark.parametrize("written", ["", "yesterday", "0001-01-01T00:00:00+23:00", "2200-01-01T00:00:00+00:00"])
def test_a_time_that_cannot_be_right_is_none(shop: Shop, written: str) -> None:
    shop.open()

    def spoil(_table: Any, transaction: Any) -> None:
        transaction.set_properties({MAINTAINED_AT: written})

    TableOperations(shop.name(), ungoverned(shop.access)).commit(spoil)

    assert [report.step for report in shop.maintainer().due(shop.name())] == ["expiry", "orphans"]


def test_one_of_two_syncs_that_end_at_once_takes_the_turn(shop: Shop) -> None:
    worn(shop)
    shop.commit(shop.open(), 7)
    done: list[list[StepReport]] = []
    other_sync = iter([lambda: done.append(list(shop.maintainer().due(shop.name())))])
    shop.access.client("glue").meta.events.register(
        "before-call.glue.UpdateTable", lambda **_: next(other_sync, lambda: None)()
    )

    done.append(list(shop.maintainer().due(shop.name())))

    assert sorted(report.step for reports in done for report in reports if report.step != "compaction") == [
        "expiry",
        "orphans",
    ]
    assert shop.ids() == [0, 1, 2, 3, 4, 5, 7]
