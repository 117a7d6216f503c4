"""`replay`: a table made again from its archive has the same rows, in every column."""

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from integration_tests.archive.histories import Histories
from integration_tests.archive.replays import Replays, difference
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import ProtocolError
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import INTEGER, NUMBER, STRING, Warehouse, object_schema

ARCHIVE = {"raw_archive": {"enabled": True}}


@pytest.fixture
def warehouse(lake: Lake, platform: Platform, table_kind: TableKind) -> Warehouse:
    return Warehouse(lake, platform, table_kind)


@pytest.fixture
def replays(launch: WarmLaunch, tmp_path: Path) -> Replays:
    return Replays(launch, tmp_path)


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
    assert difference(warehouse.lake, "orders", "orders__replay") == []


@pytest.mark.parametrize("seed", range(200))
def test_whatever_has_happened_a_replayed_table_equals_the_table(
    lake: Lake, launch: WarmLaunch, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    kind = draw.choice((*TABLE_KINDS, *PARTITIONED_KINDS))
    config = {**lake.config(**kind.options), **ARCHIVE, "batch_size_mb": 1}
    replays, said = Replays(launch, tmp_path), list[str]()

    for sync in Histories(draw, is_iceberg="iceberg" in kind.name).syncs():
        platform = Platform(tmp_path, launch if sync.killed_at is None else launch.killed_at(sync.killed_at))
        with suppress(ProtocolError):
            run = platform.write(config, configured_catalog(sync.stream), sync.lines)
            said.append(f"{sync.stream} {len(sync.lines)} {sync.killed_at} -> {run.exit_code} {run.errors}")
    if "orders" not in {name for _, name in lake.tables()}:
        return
    replayed = replays.run(config, "--stream", "orders")

    assert replayed.exit_code == 0, (said, replayed)
    assert difference(lake, "orders", "orders__replay") == [], (said, replayed)
