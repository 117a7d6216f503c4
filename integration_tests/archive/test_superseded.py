"""`maintain` with `raw_archive.superseded: delete`: what the archive has of rows that a refresh has replaced goes."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from integration_tests.archive import archived
from integration_tests.archive.replays import Replays, difference, maintain
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_stream, record, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(1)

ARCHIVE: Mapping[str, object] = {"raw_archive": {"enabled": True, "superseded": "delete"}}
COMPLETE = status("orders", "COMPLETE")


def archive_lines(launch: WarmLaunch, folder: Path, config: Mapping[str, object], *arguments: str) -> list[str]:
    """Maintain; return the lines about archives."""
    return [line for line in maintain(launch, folder, config, *arguments) if " archive: " in line]


def test_the_archive_of_a_replaced_generation_is_deleted_and_the_table_can_still_be_replayed(
    warehouse: Warehouse, launch: WarmLaunch, tmp_path: Path
) -> None:
    """The columns that only the old generation had stay, too."""
    lake, config = warehouse.lake, warehouse.config(**ARCHIVE)
    old = configured_stream("orders", object_schema(id=INTEGER, old=STRING), generation=1)
    warehouse.sync([old], [record("orders", {"id": 1, "old": "x"}), COMPLETE], **ARCHIVE)
    new = configured_stream("orders", object_schema(id=INTEGER, new=STRING), generation=2, minimum=2, sync_id=2)
    sent = [record("orders", {"id": 2, "new": "y"}), record("orders", {"id": 3})]
    warehouse.sync([new], [*sent, COMPLETE], **ARCHIVE)
    before = lake.read(lake.database, "orders")

    would = archive_lines(launch, tmp_path, config, "--dry-run")
    assert "would delete 1 object" in would[0]
    assert len(archived.lines(lake, "orders")) == 3
    assert "deleted 1 object" in archive_lines(launch, tmp_path, config, "--stream", "orders")[0]

    assert archived.lines(lake, "orders") == archived.as_archived(sent)
    assert "no objects that a refresh has replaced" in archive_lines(launch, tmp_path, config)[0]
    assert Replays(launch, tmp_path).run(config, "--stream", "orders").exit_code == 0
    assert difference(before, lake.read(lake.database, "orders__replay")) == []


def test_tables_of_another_kind_under_the_same_prefix_are_left_alone(
    lake: Lake, platform: Platform, launch: WarmLaunch, tmp_path: Path
) -> None:
    for kind, name in zip(TABLE_KINDS[:2], ("iceberg", "hive"), strict=True):
        rows = [record(name, {"id": 1}), status(name, "COMPLETE")]
        Warehouse(lake, platform, kind).sync([configured_stream(name, object_schema(id=INTEGER))], rows, **ARCHIVE)

    for kind, own, foreign in ((TABLE_KINDS[0], "iceberg", "hive"), (TABLE_KINDS[1], "hive", "iceberg")):
        lines = archive_lines(launch, tmp_path, Warehouse(lake, platform, kind).config(**ARCHIVE))

        line_by_stream = {line.partition(" ")[0].rpartition(".")[2]: line for line in lines}
        assert "no objects that a refresh has replaced" in line_by_stream[own]
        assert (
            f"skipped: the type of the table differs from table_type {kind.options['table_type']}"
            in line_by_stream[foreign]
        )


def test_what_the_table_has_rows_of_stays_whatever_the_index_says(
    warehouse: Warehouse, launch: WarmLaunch, tmp_path: Path
) -> None:
    lake, config = warehouse.lake, warehouse.config(**ARCHIVE)
    orders = configured_stream("orders", object_schema(id=INTEGER), generation=1)
    warehouse.sync([orders], [record("orders", {"id": 1}), COMPLETE], **ARCHIVE)
    end = next(key for key in archived.index(lake, "orders") if key.endswith("end.json"))
    begin = end.replace("end.json", "begin.json")
    begun = json.loads(archived.content(lake, begin))
    forged = {**begun, "sync": "f" * 12, "started": begun["started"] + 1, "generation": 9, "minimum_generation": 9}
    later = {"published": begun["started"] + 3_600_000, "position": begun.get("position", 0) + 1000}
    for name, entry in (("begin", forged), ("end", later)):
        key = f"{archived.folder(lake, 'orders')}index/{forged['started']:013d}-{'f' * 12}/{name}.json"
        lake.s3.put_object(Bucket=lake.bucket, Key=key, Body=json.dumps(entry).encode())

    assert "skipped: " in archive_lines(launch, tmp_path, config)[0]

    assert len(archived.lines(lake, "orders")) == 1
