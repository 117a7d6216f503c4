"""`delete-rows --all` after a table was dropped: what the table has left is searched, or named as left."""

from pathlib import Path

import pytest

from integration_tests.archive.replays import ARCHIVE, Replays
from integration_tests.erasure.deletions import Deletions
from integration_tests.erasure.oracle import objects_with
from integration_tests.erasure.test_delete_rows import SCHEMA, orders, people, user
from integration_tests.harness.lake import PREFIX, Lake
from integration_tests.harness.messages import configured_stream, record, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import Warehouse

pytestmark = pytest.mark.share(1)

ORDERS, ITEMS = configured_stream("orders", SCHEMA), configured_stream("items", SCHEMA)
ITEM_LINES = [*(record("items", user(number)) for number in (1, 2)), status("items", "COMPLETE")]
REJECTED = record("orders", user(2)).replace(b"1700000000000", b"1e30")


@pytest.fixture(params=TABLE_KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> TableKind:
    table_kind: TableKind = request.param
    return table_kind


@pytest.fixture
def warehouse(lake: Lake, platform: Platform, kind: TableKind) -> Warehouse:
    return Warehouse(lake, platform, kind)


@pytest.fixture
def deletions(launch: WarmLaunch, tmp_path: Path) -> Deletions:
    return Deletions(launch, tmp_path)


def delete_folder(lake: Lake, folder: str) -> None:
    for key in lake.objects(folder):
        lake.s3.delete_object(Bucket=lake.bucket, Key=key)


def sync_and_drop(warehouse: Warehouse, *, archived: bool) -> None:
    """Two tables have the people, and rejects; one of them is dropped."""
    warehouse.sync([ORDERS, ITEMS], [REJECTED, *orders(1, 2), *ITEM_LINES], **(ARCHIVE if archived else {}))
    lake = warehouse.lake
    lake.glue.delete_table(DatabaseName=lake.database, Name="orders")


@pytest.mark.parametrize(
    "emptied", [(), ("_raw",), ("_raw", "_errors")], ids=lambda folders: "-".join(folders) or "all"
)
def test_objects_of_a_dropped_table_are_searched(
    warehouse: Warehouse, deletions: Deletions, emptied: tuple[str, ...]
) -> None:
    """A lifecycle rule has emptied folders: what describes the table is left."""
    sync_and_drop(warehouse, archived=True)
    for folder in emptied:
        delete_folder(warehouse.lake, f"{PREFIX}/{folder}/")

    done = deletions.run(warehouse.config(), people(2))

    assert (done.exit_code, done.report["complete"]) == (0, True), done
    assert objects_with(warehouse.lake.s3, warehouse.lake.bucket, people(2)) == {}


def test_folders_of_a_dropped_table_without_a_description_are_left(warehouse: Warehouse, deletions: Deletions) -> None:
    lake = warehouse.lake
    sync_and_drop(warehouse, archived=False)
    root = f"{PREFIX}/{lake.database}/orders/"
    before = lake.objects(root)

    done = deletions.run(warehouse.config(), people(2))

    assert (done.exit_code, done.report["complete"]) == (1, False), done
    assert done.lines[-1].endswith(
        "Incomplete: 2 objects may still contain rows with these IDs. The report lists the remedies."
    )
    remaining = [entry["uri"] for entry in done.place(f"Dropped table {lake.database}.orders")["left"]]
    [rejects] = [uri for uri in remaining if "/_errors/" in uri]
    assert remaining == [rejects, f"s3://{lake.bucket}/{root}"]
    assert lake.objects(root) == before

    for uri in remaining:
        delete_folder(lake, uri.removeprefix(f"s3://{lake.bucket}/"))
    repeated = deletions.run(warehouse.config(), people(2))

    assert (repeated.exit_code, repeated.report["complete"]) == (0, True), repeated
    assert objects_with(lake.s3, lake.bucket, people(2)) == {}


@pytest.mark.slow
def test_objects_of_a_dropped_database_are_searched(warehouse: Warehouse, deletions: Deletions) -> None:
    lake, namespace = warehouse.lake, warehouse.lake.name("shop")
    stream = configured_stream("orders", SCHEMA, namespace=namespace)
    lines = [record("orders", user(number), namespace=namespace) for number in (1, 2)]
    warehouse.sync([stream, ITEMS], [*lines, status("orders", "COMPLETE", namespace=namespace), *ITEM_LINES], **ARCHIVE)
    lake.glue.delete_table(DatabaseName=namespace, Name="orders")
    lake.glue.delete_database(Name=namespace)

    done = deletions.run(warehouse.config(), people(2))

    assert (done.exit_code, done.report["complete"]) == (0, True), done
    assert objects_with(lake.s3, lake.bucket, people(2)) == {}


def test_dropped_replay_of_a_stream_is_searched_with_the_stream(
    warehouse: Warehouse, deletions: Deletions, launch: WarmLaunch, tmp_path: Path
) -> None:
    lake, config = warehouse.lake, warehouse.config(**ARCHIVE)
    warehouse.sync([ORDERS], [REJECTED, *orders(1, 2)], **ARCHIVE)
    assert Replays(launch, tmp_path).run(config, "--stream", "orders", "--into", "copy").exit_code == 0
    lake.glue.delete_table(DatabaseName=lake.database, Name="copy")

    done = deletions.run(config, people(2), target=("--stream", "orders"))

    left = [entry["uri"] for entry in done.place(f"Dropped table {lake.database}.copy")["left"]]
    remaining = objects_with(lake.s3, lake.bucket, people(2))
    assert done.exit_code == 1
    assert remaining
    assert all(any(f"s3://{lake.bucket}/{key}".startswith(uri) for uri in left) for key in remaining)
    assert not any("/_errors/" in key for key in remaining)
