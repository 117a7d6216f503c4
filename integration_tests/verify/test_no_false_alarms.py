"""`verify` finds nothing where nothing is wrong: whatever syncs have lived through, and whoever writes meanwhile."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from integration_tests.archive.histories import Histories
from integration_tests.erasure.deletions import Deletions
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import ProtocolError
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema
from integration_tests.verify.verifying import Verifying

pytestmark = pytest.mark.share(1)

ORDERS = object_schema(id=INTEGER)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_whatever_has_happened_a_table_is_found_to_be_right(
    lake: Lake, launch: WarmLaunch, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    kind = draw.choice((*TABLE_KINDS, *PARTITIONED_KINDS))
    config, history = {**lake.config(**kind.options), "batch_size_mb": 1}, list[str]()
    verifying = Verifying(launch, tmp_path)

    for sync in Histories(draw, is_iceberg="iceberg" in kind.name).syncs():
        platform = Platform(tmp_path, launch if sync.killed_at is None else launch.killed_at(sync.killed_at))
        with suppress(ProtocolError):
            run = platform.write(config, configured_catalog(sync.stream), sync.lines)
            history.append(f"{sync.stream} {len(sync.lines)} {sync.killed_at} -> {run.exit_code} {run.errors}")
        if lake.tables():
            assert verifying.problems(config) == [], (kind.name, history)


def test_a_table_that_another_engine_writes_to_is_right(
    lake: Lake, platform: Platform, launch: WarmLaunch, tmp_path: Path
) -> None:
    """Rows that it has appended, and some that it has deleted by position and by copy."""
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    orders = configured_stream("orders", ORDERS)
    sent = [record("orders", {"id": id_}) for id_ in range(5)]
    warehouse.sync([orders], [*sent, state("orders", 1), status("orders", "COMPLETE")])
    table = lake.iceberg_table(lake.database, "orders")
    table.append(table.scan().to_arrow())
    table.delete("id = 3")

    assert Verifying(launch, tmp_path).problems(warehouse.config()) == []
    assert len(warehouse.ids("orders")) == 8


@pytest.mark.slow
@pytest.mark.parametrize("kind", TABLE_KINDS, ids=lambda kind: kind.name)
def test_erased_rows_are_no_alarm_and_other_missing_rows_are(
    lake: Lake, platform: Platform, launch: WarmLaunch, tmp_path: Path, kind: TableKind
) -> None:
    """Of the first sync an erasure leaves two rows, of the second one no file."""
    warehouse, orders = Warehouse(lake, platform, kind), configured_stream("orders", ORDERS)
    verifying = Verifying(launch, tmp_path)
    for ids in ((1, 2, 3), (7,)):
        sent = [record("orders", {"id": id_}) for id_ in ids]
        warehouse.sync([orders], [*sent, state("orders", 1), status("orders", "COMPLETE")])

    assert Deletions(launch, tmp_path).run(warehouse.config(), [2, 7], column="id").exit_code == 0

    assert verifying.problems(warehouse.config()) == []
    [remaining_key] = lake.data_files(lake.database, "orders")
    lake.s3.delete_object(Bucket=lake.bucket, Key=remaining_key)
    [problem] = verifying.problems(warehouse.config())
    assert (
        "does not exist" in problem["description"]
        or "3 rows. At most 1 of these rows were erased later" in problem["description"]
    )
    lake.s3.put_object(Bucket=lake.bucket, Key="lake/_deletions/broken/request.json", Body=b"{")
    code, _, notes = verifying.run(warehouse.config(), "--all")
    assert (code, "the ledger of erasures" in notes) == (int("does not exist" in problem["description"]), True)


@pytest.mark.slow
def test_a_sync_beside_it_is_no_alarm(lake: Lake, launch: WarmLaunch, tmp_path: Path, platform: Platform) -> None:
    for kind in TABLE_KINDS:
        warehouse = Warehouse(lake, platform, kind)
        verifying, orders = Verifying(launch, tmp_path), configured_stream(f"of_{kind.name}", ORDERS)
        with warehouse.start([orders], flush_interval_seconds=1) as running:
            for number in range(3):
                running.send([record(f"of_{kind.name}", {"id": number}), state(f"of_{kind.name}", number)])
                running.wait_for_states(number + 1)
                assert verifying.problems(warehouse.config()) == []
            running.send([status(f"of_{kind.name}", "COMPLETE")])
            assert running.close().exit_code == 0
