"""`replay`: a table made again from its archive has the same rows, in every column."""

import random
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from integration_tests.archive import archived
from integration_tests.archive.histories import Histories, Sync
from integration_tests.archive.replays import ARCHIVE, Replays, difference
from integration_tests.archive.strikes import started
from integration_tests.erasure.deletions import Deletions
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.runs.output import ProtocolError
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, NUMBER, STRING, Warehouse, object_schema

pytestmark = pytest.mark.share(2)


def lines(*rows: Json, emitted_at: int = 1_700_000_000_000) -> Sequence[bytes]:
    return [
        *(record("orders", row, emitted_at=emitted_at + number) for number, row in enumerate(rows)),
        state("orders", 1),
        status("orders", "COMPLETE"),
    ]


NARROW = object_schema(id=INTEGER, name=STRING)
WIDE = object_schema(id=INTEGER, name=STRING, price=NUMBER)


def test_a_replayed_table_equals_the_table(warehouse: Warehouse, replays: Replays) -> None:
    """Columns that came later, wider types, values that were refused, a refresh."""
    warehouse.sync([configured_stream("orders", NARROW)], lines({"id": 1, "name": "a"}, {"id": "x"}), **ARCHIVE)
    refreshed = configured_stream("orders", WIDE, generation=2, minimum=2, sync_id=2)
    warehouse.sync([refreshed], lines({"id": 2, "price": 1.5}, {"id": 2**40, "price": 1e300}), **ARCHIVE)
    appended = configured_stream("orders", WIDE, generation=2, sync_id=3)
    warehouse.sync([appended], lines({"id": 4, "price": "no"}, {"id": 5, "name": 7}), **ARCHIVE)

    replayed = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders")

    assert replayed.exit_code == 0, replayed
    assert difference(whole(warehouse.lake, "orders"), whole(warehouse.lake, "orders__replay")) == []


def whole(lake: Lake, table: str) -> pa.Table:
    """Return all rows of a table with all columns."""
    return lake.read(lake.database, table)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200))
def test_whatever_has_happened_a_replayed_table_equals_the_table(
    lake: Lake, launch: WarmLaunch, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    kind = draw.choice((*TABLE_KINDS, *PARTITIONED_KINDS))
    config = {**lake.config(**kind.options), **ARCHIVE, "batch_size_mb": 1}
    replays, history = Replays(launch, tmp_path), list[str]()

    for sync in Histories(draw, is_iceberg="iceberg" in kind.name).syncs():
        history.append(run(sync, config, lake, launch, tmp_path))
    if "orders" not in {name for _, name in lake.tables()}:
        return
    replayed = replays.run(config, "--stream", "orders")

    assert replayed.exit_code == 0, (history, replayed)
    before = whole(lake, "orders")
    assert difference(before, whole(lake, "orders__replay")) == [], (history, replayed)
    replaced = replays.run(config, "--stream", "orders", "--replace")
    assert replaced.exit_code == 0, (history, replaced)
    assert difference(before, whole(lake, "orders")) == [], (history, replaced)
    assert {name for _, name in lake.tables()} <= {
        "orders",
        "orders__replay",
        "airbyte_rejects",
        "airbyte_sync_reports",
    }


def run(sync: Sync, config: Mapping[str, object], lake: Lake, launch: WarmLaunch, folder: Path) -> str:
    """Run a sync to its end, whichever that is; return what it was and how it ended."""
    with started(lake, launch, folder, config, sync.stream, sync.strike) as running:
        running.send(sync.lines)
        ended = running.close() if sync.strike is None else running.perish()
    return f"{sync.stream} {len(sync.lines)} {sync.archives} {sync.strike} -> {ended.exit_code} {ended.errors}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(300))
def test_replay_equals_the_table_or_names_the_gap(lake: Lake, launch: WarmLaunch, tmp_path: Path, seed: int) -> None:
    """Syncs without an archive, kills at any request, PUTs that are refused, platforms without ids, erasures, rows that
    another engine deletes and adds, objects gone.
    """
    draw = random.Random(seed)
    kind = draw.choice((*TABLE_KINDS, *PARTITIONED_KINDS))
    config = {**lake.config(**kind.options), "batch_size_mb": 1}
    replays, history, erasures = Replays(launch, tmp_path), list[str](), list[int]()

    for sync in Histories(draw, "iceberg" in kind.name, with_gaps=True).syncs():
        history.append(run(sync, {**config, **(ARCHIVE if sync.archives else {})}, lake, launch, tmp_path))
        if draw.random() < 0.1:
            erased = Deletions(launch, tmp_path).run({**config, **ARCHIVE}, [draw.randint(1, 6)], column="id")
            history.append(f"erased {erased}")
            erasures.append(erased.exit_code)
        elif draw.random() < 0.2:
            history.append(interfered(draw, lake, takes_rows=kind.name == "iceberg"))
    before = whole(lake, "orders") if "orders" in {name for _, name in lake.tables()} else None
    if before is None or not archived.objects(lake, "orders"):
        return
    replayed = replays.run({**config, **ARCHIVE}, "--stream", "orders")

    assert replayed.exit_code == 0, (history, replayed)
    named = [line for line in replayed.lines if line.startswith(("Gap: ", "Difference: "))]
    if not named:
        assert difference(before, whole(lake, "orders__replay")) == [], (history, replayed)
    replaced = replays.run({**config, **ARCHIVE}, "--stream", "orders", "--replace")
    refusals = [line for line in named if "contains columns" not in line]  # The table keeps its columns.
    waits = any(erasures) and "`delete-rows` has not finished its request" in replaced.stderr
    assert replaced.exit_code == (1 if refusals or waits else 0), (history, replayed, replaced)
    assert difference(before, whole(lake, "orders")) == [], (history, replayed, replaced)


def interfered(draw: random.Random, lake: Lake, *, takes_rows: bool) -> str:
    """Do what another program may: delete or add rows, drop the table, or delete an archived object."""
    exists = "orders" in {name for _, name in lake.tables()}
    action = draw.choice(("delete", "append", "drop", "expire"))
    if action == "expire" and (keys := sorted(archived.objects(lake, "orders"))):
        lake.s3.delete_object(Bucket=lake.bucket, Key=draw.choice(keys))
    elif action == "drop" and exists:
        lake.drop_table(lake.database, "orders")
    elif action in ("delete", "append") and exists and takes_rows:
        table = lake.iceberg_table(lake.database, "orders")
        if action == "delete":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # There may be no such rows.
                table.delete(f"id < {draw.randint(2, 4)}")
        elif (rows := whole(lake, "orders")).num_rows:
            table.append(rows.slice(0, 1).cast(table.schema().as_arrow()))
    return action


@pytest.mark.share(1)
@pytest.mark.parametrize("seed", range(30))
def test_syncs_that_overlap_are_lived_through_as_they_were(
    lake: Lake, platform: Platform, replays: Replays, seed: int
) -> None:
    """Two connections write to an Iceberg table at once: one appends, or deduplicates, the other may refresh."""
    draw = random.Random(seed)
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    key = draw.choice(([], ["id"]))
    mode: Literal["append", "append_dedup"] = "append_dedup" if key else "append"
    first = configured_stream("orders", NARROW, mode=mode, primary_key=key, generation=1)
    warehouse.sync([first], lines({"id": 1, "name": "before"}, {"id": 2}), **ARCHIVE)
    refresh = draw.choice((0, 2))
    generation = max(1, refresh)
    second = configured_stream("orders", WIDE, mode=mode, primary_key=key, generation=generation, minimum=refresh)

    options = {**ARCHIVE, "flush_interval_seconds": 1}
    with warehouse.start([first], **options) as first_sync, warehouse.start([second], **options) as second_sync:
        sent = {first_sync: 0, second_sync: 0}
        for number in range(draw.randint(2, 6)):
            running = draw.choice((first_sync, second_sync))
            row = {"id": draw.randint(1, 4), "name": f"{seed} {number}", "price": number}
            running.send([record("orders", row, emitted_at=1_700_000_000_000 + number), state("orders", number)])
            sent[running] += 1
            with suppress(ProtocolError):  # It has ended, as the other one has fenced it.
                running.wait_for_states(sent[running])
        for running in draw.sample((first_sync, second_sync), 2):
            running.send([status("orders", "COMPLETE")])
            running.close()
    replayed = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders")

    assert replayed.exit_code == 0, replayed
    assert difference(whole(lake, "orders"), whole(lake, "orders__replay")) == [], replayed
