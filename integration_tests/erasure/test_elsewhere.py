"""People erased from Hive tables, archives and rejects: no object says anything of them, and all others stay.

The records of a person come in every form in which a source may send their id. All have a text that nothing else has.
"""

from __future__ import annotations

import random
from base64 import b64decode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from destination_datalake.config.options import Config, aws_access
from destination_datalake.erasure.ids import IdsFile
from destination_datalake.erasure.ledger import Ledger
from destination_datalake.erasure.model import ErasedObject
from destination_datalake.tables.catalogs import catalog_of
from destination_datalake.tables.naming import TableNaming
from integration_tests.archive.histories import Histories
from integration_tests.archive.replays import ARCHIVE, Replays, difference
from integration_tests.erasure.oracle import traces
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import Json, configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import ProtocolError
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind
from integration_tests.harness.warehouse import INTEGER, STRING, Warehouse, object_schema
from unit_tests.erasure import places

pytestmark = pytest.mark.share(1)

HIVE = [kind for kind in (*TABLE_KINDS, *PARTITIONED_KINDS) if kind.options["table_type"] == "HIVE"]

PERSON = 424242
SECRET = "Zaphod"
"""A text in all records of the person, in whichever form the id comes."""


def erased(config: Mapping[str, object], folder: Path, column: str, *ids: object) -> list[ErasedObject]:
    """Erase in the places of the stream `orders`; the second search finds nothing."""
    parsed = Config.parse(config)
    access = aws_access(parsed)
    (table, *_) = TableNaming.from_config(parsed).candidates("orders")
    done = places.erased(places.request_of(folder, parsed, access, catalog_of(parsed, access), column, *ids), table)
    assert all(erased_object.outcome != "left" for erased_object in done)
    return done


def person(form: object, **fields: object) -> bytes:
    """A record of the person, whose id has this form."""
    return record("orders", {"name": SECRET, "userId": form, **fields})


ODD = [
    person(PERSON),
    person(str(PERSON)),
    person(f" {PERSON}\t"),
    person(0).replace(b'"userId":0', b'"userId": 4.24242e5'),
    person(0).replace(b'"userId":0', b'"userId":424242.000'),
    person(0).replace(b'"userId":0', b'"user\\u0049d": "\\u00342424\\u0032"'),
    person(0).replace(b'"userId":0', b'"userId": 1, "userId": 424242'),
    person(PERSON, n="not a number"),
    person(PERSON, n="seven", t="never"),
    person(PERSON).replace(b"1700000000000", b"1e30"),
    person(PERSON, lone="?").replace(b'"?"', b'"\\ud800"'),
]
OTHER_PEOPLE = [
    record("orders", {"name": "other", "userId": id_, "n": n})
    for id_, n in ((1, 424242), (4242420, 1), (None, 2), ("x", 3), (5, "many"), (42424, None))
]
SCHEMA = object_schema(name=STRING, userId=INTEGER, n=INTEGER, t={"type": "string", "format": "date-time"}, lone=STRING)


def whole(lake: Lake, table: str = "orders") -> pa.Table:
    return lake.read(lake.database, table)


def rows_of_others(rows: pa.Table) -> pa.Table:
    """The rows of all but the person."""
    is_other: Any = pc.not_equal(rows["name"], pa.scalar(SECRET))
    return rows.filter(is_other.fill_null(True))


@pytest.mark.share(1)
@pytest.mark.parametrize("table_kind", HIVE, ids=lambda kind: kind.name)
def test_nothing_is_left_of_a_person_and_all_of_the_others_is(
    lake: Lake, platform: Platform, replays: Replays, tmp_path: Path, table_kind: TableKind
) -> None:
    warehouse = Warehouse(lake, platform, table_kind)
    first = configured_stream("orders", SCHEMA)
    sent = random.Random(1).sample([*ODD, *OTHER_PEOPLE], len(ODD) + len(OTHER_PEOPLE))
    warehouse.sync([first], [*sent[:8], state("orders", 1), *sent[8:], state("orders", 2), complete()], **ARCHIVE)
    warehouse.sync([first], [*ODD[:2], *OTHER_PEOPLE[:2], complete()], **ARCHIVE)
    before, rejects = whole(lake), lake.rejects()
    assert len(traces(lake.s3, lake.bucket, SECRET)) >= 4

    erased(warehouse.config(**ARCHIVE), tmp_path, "user_id", PERSON)

    assert traces(lake.s3, lake.bucket, SECRET) == []
    assert difference(rows_of_others(before), whole(lake)) == []
    ours = {reject["sequencenumber"] for reject in rejects if SECRET.encode() in b64decode(reject["rawdata"] or "")}
    assert lake.rejects() == [reject for reject in rejects if reject["sequencenumber"] not in ours]
    replayed = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders")
    assert replayed.exit_code == 0, replayed
    assert difference(whole(lake), whole(lake, "orders__replay")) == []
    replaced = replays.run(warehouse.config(**ARCHIVE), "--stream", "orders", "--replace")
    assert replaced.exit_code == 0, replaced
    assert difference(rows_of_others(before), whole(lake)) == []
    warehouse.sync([first], [OTHER_PEOPLE[0], complete()], **ARCHIVE)
    assert whole(lake).num_rows == rows_of_others(before).num_rows + 1


def complete() -> bytes:
    return status("orders", "COMPLETE")


@pytest.mark.parametrize("table_kind", HIVE[:2], ids=lambda kind: kind.name)
def test_values_that_another_type_was_given_to_are_erased_everywhere(
    lake: Lake, platform: Platform, tmp_path: Path, table_kind: TableKind
) -> None:
    """From the column that they were redirected to, the archive and the rejects."""
    warehouse = Warehouse(lake, platform, table_kind)
    warehouse.sync([configured_stream("orders", SCHEMA)], [*OTHER_PEOPLE, complete()], **ARCHIVE)
    retyped = configured_stream("orders", object_schema(name=STRING, userId=STRING))
    refused = person(str(PERSON)).replace(b"1700000000000", b"1e30")
    warehouse.sync([retyped], [person(str(PERSON)), refused, complete()], **ARCHIVE)
    before = whole(lake)
    assert str(PERSON) in before["user_id__string"].to_pylist()
    folders = {
        folder for key in traces(lake.s3, lake.bucket, SECRET) for folder in ("_raw", "_errors") if folder in key
    }
    assert folders == {"_raw", "_errors"}

    erased(warehouse.config(**ARCHIVE), tmp_path, "user_id", PERSON)

    assert traces(lake.s3, lake.bucket, SECRET) == []
    assert difference(rows_of_others(before), whole(lake)) == []


def test_tombstones_and_versions_of_a_person_are_replayed_no_more(
    lake: Lake, platform: Platform, replays: Replays, tmp_path: Path
) -> None:
    """The archive of a deduplicated Iceberg table, which another place erases: its replay has the other people."""
    warehouse = Warehouse(lake, platform, TABLE_KINDS[0])
    schema = object_schema(
        id=INTEGER, name=STRING, v=INTEGER, _ab_cdc_deleted_at={"type": "string", "format": "date-time"}
    )
    orders = configured_stream("orders", schema, mode="append_dedup", primary_key=["id"], cursor="v")
    rows: Sequence[Json] = [
        {"id": PERSON, "name": SECRET, "v": 1},
        {"id": 1, "name": "a", "v": 1},
        {"id": PERSON, "name": SECRET, "v": 2, "_ab_cdc_deleted_at": "2024-01-02T00:00:00Z"},
        {"id": 2, "name": "b", "v": 1},
        {"id": PERSON, "name": SECRET, "v": 3},
    ]
    warehouse.sync([orders], [*(record("orders", row) for row in rows), complete()], **ARCHIVE)
    warehouse.sync([orders], [record("orders", {"id": 2, "name": "c", "v": 5}), complete()], **ARCHIVE)
    before = whole(lake)

    (object_,) = erased(warehouse.config(**ARCHIVE), tmp_path, "id", PERSON)

    assert (object_.rows_found, object_.outcome) == (3, "rewritten")
    assert replays.run(warehouse.config(**ARCHIVE), "--stream", "orders").exit_code == 0
    assert difference(rows_of_others(before), whole(lake, "orders__replay")) == []
    assert [key for key in traces(lake.s3, lake.bucket, SECRET) if "/_raw/" in key] == []


def test_a_replay_leaves_out_what_came_to_the_archive_after_the_erasure(
    lake: Lake, platform: Platform, replays: Replays, tmp_path: Path
) -> None:
    """By the ledger: it has salted hashes alone."""
    warehouse = Warehouse(lake, platform, HIVE[0])
    orders = configured_stream("orders", SCHEMA)
    config = warehouse.config(**ARCHIVE)
    (tmp_path / "ids").write_text(f"{PERSON}\n5\n")
    file, parsed = IdsFile(tmp_path / "ids"), Config.parse(config)
    ledger = Ledger.open("user_id", ("all",), file, parsed, aws_access(parsed))
    ledger.begin({f"{lake.database}.orders": pa.int64()}, file, suppress=False)
    warehouse.sync([orders], [*ODD, *OTHER_PEOPLE, complete()], **ARCHIVE)
    before = whole(lake)

    replayed = replays.run(config, "--stream", "orders")

    assert replayed.exit_code == 0, replayed
    remaining = rows_of_others(before)
    is_kept: Any = pc.not_equal(remaining["user_id"], pa.scalar(5, pa.int64()))
    kept = remaining.filter(is_kept.fill_null(True))
    assert difference(kept, whole(lake, "orders__replay")) == []
    rejected = b"".join(
        b64decode(reject["rawdata"] or "") for reject in lake.rejects() if "__replay" in reject["stream"]
    )
    assert SECRET.encode() not in rejected
    assert str(PERSON) not in str([*lake.objects("airbyte/_deletions/")])


@pytest.mark.parametrize("stream", ["Ünï çødé, q=%41?", "a.b/c", "x" * 200])
def test_tables_of_odd_names_are_searched_where_they_are(
    lake: Lake, platform: Platform, tmp_path: Path, stream: str
) -> None:
    config = lake.config(**HIVE[0].options, **ARCHIVE)
    catalog = configured_catalog(configured_stream(stream, object_schema(**{"User Id": INTEGER, "name": STRING})))
    lines = [
        record(stream, {"User Id": PERSON, "name": SECRET}),
        record(stream, {"User Id": 7, "name": "other"}),
        status(stream, "COMPLETE"),
    ]
    assert platform.write(config, catalog, lines).exit_code == 0
    ((_, name),) = [identifier for identifier in lake.tables() if not identifier[1].startswith("airbyte_")]
    parsed = Config.parse(config)
    access = aws_access(parsed)
    (table,) = [
        candidate for candidate in TableNaming.from_config(parsed).candidates(stream) if candidate.table == name
    ]

    asked = places.request_of(tmp_path, parsed, access, catalog_of(parsed, access), "user_id", PERSON)
    done = places.erased(asked, table)

    assert sorted(erased_object.rows_found for erased_object in done) == [1, 1]
    assert traces(lake.s3, lake.bucket, SECRET) == []
    assert [row["name"] for row in lake.rows(lake.database, name)] == ["other"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_whatever_has_happened_a_replay_has_all_rows_but_those_of_the_ids(
    lake: Lake, launch: WarmLaunch, tmp_path: Path, seed: int
) -> None:
    """Random histories of Hive tables: the replay of an erased archive equals the erased table, and the former one."""
    draw = random.Random(seed)
    kind = draw.choice(HIVE)
    config = {**lake.config(**kind.options), **ARCHIVE, "batch_size_mb": 1}
    replays, history = Replays(launch, tmp_path), list[str]()
    for sync in Histories(draw, is_iceberg=False).syncs():
        platform = Platform(tmp_path, launch if sync.killed_at is None else launch.killed_at(sync.killed_at))
        with suppress(ProtocolError):
            run = platform.write(config, configured_catalog(sync.stream), sync.lines)
            history.append(f"{sync.stream} {len(sync.lines)} {sync.killed_at} -> {run.exit_code} {run.errors}")
    if "orders" not in {name for _, name in lake.tables()}:
        return
    before = whole(lake)
    ids = draw.sample(range(1, 7), draw.randint(1, 3))

    erased(config, tmp_path, "id", *ids)

    erased_ids = pa.array(ids, before["id"].type)
    remaining = before.filter(pc.invert(pc.is_in(before["id"], value_set=erased_ids)))
    assert difference(remaining, whole(lake)) == [], history
    replayed = replays.run(config, "--stream", "orders")
    assert replayed.exit_code == 0, (history, replayed)
    assert difference(remaining, whole(lake, "orders__replay")) == [], (history, replayed)
