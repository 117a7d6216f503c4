"""Syncs that are killed in the middle of something, and what the next one makes of it.

Three streams share every sync: one is appended to; one is replaced by a truncate that is resumed from its last
acknowledged state; one is replaced by a full refresh that cannot be resumed, so that the platform starts it over as a
new generation. They are killed at a point, run again as the platform would, and looked at by a reader in between.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from integration_tests.harness.messages import configured_stream, record, state, status
from integration_tests.harness.runs.kill_points import KillPoint
from integration_tests.harness.runs.output import ProtocolError, Run
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TABLE_KINDS
from integration_tests.harness.warehouse import INTEGER, NUMBER, Warehouse, object_schema

pytestmark = pytest.mark.share(2)

APPENDED, RESUMED, RESTARTED = "appended", "resumed", "restarted"
STREAMS = (APPENDED, RESUMED, RESTARTED)
OLD = 100
"""The id of the row that every table has before the sync that is killed."""
HALVES = ((1, 2), (3, 4))
"""The ids of the records of every stream, in the batches in which they are sent; a state follows each half."""
NEW = [id for half in HALVES for id in half]

LANDING = "destination_datalake.sync.landing:Landing"
CONDUCTOR = "destination_datalake.sync.conductor:Conductor"
IN_FLIGHT = "destination_datalake.sync.in_flight:InFlight"
ICEBERG = "destination_datalake.tables.iceberg.table:IcebergTable"
PROMOTION = "destination_datalake.tables.iceberg.table:Promotion"
WRITE_MODES = "destination_datalake.tables.iceberg.write_modes"
GLUE_COMMIT = "pyiceberg.catalog.glue:GlueCatalog.commit_table"
REST_COMMIT = "pyiceberg.catalog.rest:RestCatalog.commit_table"
HIVE = "destination_datalake.tables.hive.table:HiveTable"
UPDATE = "destination_datalake.tables.glue.glue_table:GlueTable.update"
MOVES = "destination_datalake.tables.hive.moves:Moves"
FOLDERS = "destination_datalake.tables.hive.folders:Folders"
HIDDEN = "destination_datalake.aws.objects:DeferredUpload.publish"

EVERYWHERE = (
    KillPoint("before", f"{LANDING}.land"),
    KillPoint("after", f"{LANDING}._encoded"),
    KillPoint("before", f"{LANDING}._encoded", 2),
    KillPoint("after", f"{LANDING}._commit"),
    KillPoint("before", f"{IN_FLIGHT}.settle"),
    KillPoint("after", f"{IN_FLIGHT}.settle"),
    KillPoint("before", f"{IN_FLIGHT}.settle", 4),
    KillPoint("after", f"{IN_FLIGHT}.settle", 6),
    KillPoint("before", f"{LANDING}.publish"),
    KillPoint("after", f"{LANDING}.publish"),
    KillPoint("before", f"{CONDUCTOR}._conclude"),
)
"""Between the stages of a batch, and of the end of a sync."""

POINTS: Mapping[object, Sequence[KillPoint]] = {
    "ICEBERG": (
        *EVERYWHERE,
        KillPoint("after", f"{ICEBERG}.prepare"),
        KillPoint("after", f"{ICEBERG}.prepare", 3),
        KillPoint("before", f"{ICEBERG}.commit"),
        KillPoint("after", f"{WRITE_MODES}:WriteMode.append_files"),
        KillPoint("after", f"{ICEBERG}.commit", 2),
        KillPoint("before", f"{ICEBERG}.commit", 5),
        KillPoint("before", GLUE_COMMIT),
        KillPoint("after", GLUE_COMMIT),
        KillPoint("before", GLUE_COMMIT, 4),
        KillPoint("after", GLUE_COMMIT, 6),
        KillPoint("before", f"{ICEBERG}.publish", 2),
        KillPoint("after", f"{ICEBERG}.publish"),
        KillPoint("after", f"{ICEBERG}.publish", 3),
    ),
    "HIVE": (
        *EVERYWHERE,
        KillPoint("after", f"{HIVE}.prepare"),
        KillPoint("after", f"{HIVE}.prepare", 3),
        KillPoint("after", UPDATE),
        KillPoint("before", f"{HIVE}.commit"),
        KillPoint("after", f"{HIVE}.commit", 2),
        KillPoint("before", HIDDEN),
        KillPoint("after", HIDDEN),
        KillPoint("before", HIDDEN, 5),
        KillPoint("after", HIDDEN, 6),
        KillPoint("before", f"{HIVE}.publish", 2),
        KillPoint("before", f"{HIVE}._record_commit"),
        KillPoint("after", f"{HIVE}._record_commit", 3),
        KillPoint("before", f"{FOLDERS}.delete_folder"),
        KillPoint("after", f"{FOLDERS}.delete_folder"),
        KillPoint("after", f"{HIVE}.publish", 3),
    ),
}
"""By the option `table_type`: what is different about their commits is also where they can be interrupted."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Try every point at which a sync can be killed, with every kind of table that has it."""
    in_rest = metafunc.config.getoption("--rest-catalog")
    points = {test.__name__: where for test, where in KILLED_AT.items()}[metafunc.function.__name__]
    params = [
        pytest.param(kind, _in_rest(point) if in_rest else point, id=f"{kind.name}-{point}")
        for kind in TABLE_KINDS
        for point in points[kind.options["table_type"]]
    ]
    metafunc.parametrize(("table_kind", "point"), params)


def _in_rest(point: KillPoint) -> KillPoint:
    return replace(point, function=REST_COMMIT) if point.function == GLUE_COMMIT else point


@pytest.mark.share(5)
def test_a_sync_that_is_killed_loses_nothing_that_it_acknowledged(
    warehouse: Warehouse, launch: WarmLaunch, tmp_path: Path, point: KillPoint
) -> None:
    """SIGKILL at every stage of a batch, a commit and a publish: acknowledged records are there, and a refresh that
    starts over holds each row once; a table that is appended to, or whose truncate is resumed, holds nothing twice but
    what was sent again because its state had not come back.
    """
    warehouse.sync(
        catalog(resumed=1, restarted=1),
        [line for name in STREAMS for line in (record(name, {"id": OLD}), status(name, "COMPLETE"))],
    )
    dying = replace(warehouse, platform=Platform(tmp_path, launch.killed_at(point)))

    killed = sync_in_halves(dying, catalog(resumed=2, restarted=2))

    assert killed.exit_code == -9, f"the point was not reached\n{killed.report()}"
    for name in (RESUMED, RESTARTED):
        assert warehouse.ids(name) in ([OLD], NEW), f"{name} shows neither its old rows nor its new ones"

    acknowledged = {name: last_acknowledged(killed, name) for name in STREAMS}
    assert set(range(1, acknowledged[APPENDED] + 1)) <= set(warehouse.ids(APPENDED))

    resent = {name: [id for id in NEW if id > acknowledged[name] or name == RESTARTED] for name in STREAMS}
    warehouse.sync(
        catalog(resumed=2, restarted=3),
        [
            line
            for name in STREAMS
            for line in (*(record(name, {"id": id}) for id in resent[name]), status(name, "COMPLETE"))
        ],
    )

    assert warehouse.ids(RESTARTED) == NEW
    for name, before in ((APPENDED, [OLD]), (RESUMED, [])):
        counts = Counter(warehouse.ids(name))
        assert set(counts) == {*before, *NEW}
        assert {id for id, times in counts.items() if times > 1} <= set(resent[name]), (
            "only what was re-sent is there twice"
        )
        assert max(counts.values()) <= 2


def catalog(resumed: int, restarted: int) -> list[dict[str, object]]:
    """Return the three streams, at these generations."""
    schema = object_schema(id=INTEGER)
    return [
        configured_stream(APPENDED, schema),
        configured_stream(RESUMED, schema, generation=resumed, minimum=resumed),
        configured_stream(RESTARTED, schema, generation=restarted, minimum=restarted),
    ]


def sync_in_halves(dying: Warehouse, streams: Sequence[dict[str, object]]) -> Run:
    """Send every stream's halves, each once the states of the one before have come back, until the connector dies."""
    with dying.start(streams, flush_interval_seconds=1) as running, suppress(ProtocolError):
        for count, half in enumerate(HALVES, start=1):
            for name in STREAMS:
                running.send([*(record(name, {"id": id}) for id in half), state(name, half[-1])])
            running.wait_for_states(count * len(STREAMS))
        running.send([status(name, "COMPLETE") for name in STREAMS])
    return running.perish()


def last_acknowledged(run: Run, name: str) -> int:
    """Return the cursor of the stream's last state that came back; 0 if none did."""
    streams = [answer.body["stream"] for answer in run.states]
    cursors = [body["stream_state"]["cursor"] for body in streams if body["stream_descriptor"]["name"] == name]
    return cursors[-1] if cursors else 0


ADOPTING: Mapping[object, Sequence[KillPoint]] = {
    "ICEBERG": (
        KillPoint("before", f"{WRITE_MODES}:Append.begin"),
        KillPoint("after", f"{WRITE_MODES}:Append.begin"),
        KillPoint("before", GLUE_COMMIT),
        KillPoint("after", GLUE_COMMIT),
    ),
    "HIVE": (
        KillPoint("before", UPDATE),
        KillPoint("after", UPDATE),
        KillPoint("before", f"{FOLDERS}.copy"),
        KillPoint("after", f"{FOLDERS}.copy"),
        KillPoint("after", UPDATE, 2),
        KillPoint("after", UPDATE, 3),
        KillPoint("after", f"{MOVES}.adopt"),
        KillPoint("before", f"{FOLDERS}.delete_folder"),
        KillPoint("after", f"{FOLDERS}.delete_folder"),
    ),
}
"""Where rows of an unfinished overwrite are taken into the table."""


@pytest.mark.share(2)
def test_a_cancelled_truncate_s_rows_arrive_once_however_often_that_is_interrupted(
    warehouse: Warehouse, launch: WarmLaunch, tmp_path: Path, point: KillPoint
) -> None:
    """SIGKILL while they are taken into the table: they are there once, not twice and not never."""
    schema = object_schema(id=INTEGER)
    complete = status(APPENDED, "COMPLETE")
    warehouse.sync([configured_stream(APPENDED, schema, generation=1)], [record(APPENDED, {"id": OLD}), complete])
    warehouse.attempt(
        [configured_stream(APPENDED, schema, generation=2, minimum=2)],
        [record(APPENDED, {"id": 1}), state(APPENDED, 1)],
    )
    appending = [configured_stream(APPENDED, schema, generation=3)]
    dying = replace(warehouse, platform=Platform(tmp_path, launch.killed_at(point)))

    with dying.start(appending) as running:
        running.send([complete])
        killed = running.perish()

    assert killed.exit_code == -9, f"the point was not reached\n{killed.report()}"
    warehouse.sync(appending, [record(APPENDED, {"id": 2}), complete])
    assert warehouse.ids(APPENDED) == [1, 2, OLD]


PROMOTING: Mapping[object, Sequence[KillPoint]] = {
    "ICEBERG": (
        KillPoint("before", f"{PROMOTION}.rewrite_files"),
        KillPoint("after", f"{PROMOTION}.rewrite_files"),
        KillPoint("after", f"{PROMOTION}.log"),
    ),
    "HIVE": (),
}
"""Where files are rewritten because a column becomes double, and swapped in the commit that makes it so."""


@pytest.mark.share(1)
def test_a_promotion_that_is_killed_leaves_no_column_that_is_wider_than_its_files(
    warehouse: Warehouse, launch: WarmLaunch, tmp_path: Path, point: KillPoint
) -> None:
    """SIGKILL before and after files are rewritten: the schema and the files change together, or not at all."""
    streams = [configured_stream(APPENDED, object_schema(id=INTEGER, price=NUMBER), generation=1)]
    complete = status(APPENDED, "COMPLETE")
    warehouse.sync(streams, [record(APPENDED, {"id": OLD, "price": 0.5}), complete])
    dying = replace(warehouse, platform=Platform(tmp_path, launch.killed_at(point)))
    wide = record(APPENDED, {"id": 1, "price": 1 / 3})

    with dying.start(streams, flush_interval_seconds=1) as running, suppress(ProtocolError):
        running.send([wide, state(APPENDED, 1)])
        running.wait_for_states(1)
    killed = running.perish()

    assert killed.exit_code == -9, f"the point was not reached\n{killed.report()}"
    assert stored_prices(warehouse) == {warehouse.lake.columns(warehouse.lake.database, APPENDED)["price"]}
    warehouse.sync(streams, [wide, complete])
    assert {row["id"]: row["price"] for row in warehouse.rows(APPENDED)} == {OLD: 0.5, 1: 1 / 3}
    assert stored_prices(warehouse) == {"double"}


def stored_prices(warehouse: Warehouse) -> set[str]:
    """Return the types that the live files have for the column `price`."""
    lake = warehouse.lake
    files = lake.data_files(lake.database, APPENDED)
    bodies = [lake.s3.get_object(Bucket=lake.bucket, Key=key)["Body"].read() for key in files]
    return {str(pq.read_schema(pa.BufferReader(body)).field("price").type) for body in bodies}


KILLED_AT: Mapping[Callable[..., None], Mapping[object, Sequence[KillPoint]]] = {
    test_a_sync_that_is_killed_loses_nothing_that_it_acknowledged: POINTS,
    test_a_cancelled_truncate_s_rows_arrive_once_however_often_that_is_interrupted: ADOPTING,
    test_a_promotion_that_is_killed_leaves_no_column_that_is_wider_than_its_files: PROMOTING,
}
