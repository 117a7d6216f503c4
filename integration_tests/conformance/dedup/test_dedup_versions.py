"""Which record of a key is the latest, and what a deletion does, in one sync and from sync to sync."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from integration_tests.conformance.dedup.items import COMPLETE, ONLY_ICEBERG, deleted, item, items, names
from integration_tests.harness.messages import Json, configured_stream, record, state, status
from integration_tests.harness.runs.output import record_count
from integration_tests.harness.warehouse import BOOLEAN, INTEGER, NUMBER, STRING, Warehouse, object_schema

pytestmark = [ONLY_ICEBERG, pytest.mark.share(2)]

EARLY, LATE = 1_600_000_000_000, 1_700_000_000_000

Version = tuple[int | None, str | None, int]
"""Cursor, name (None: a deletion), and time of extraction."""

HISTORIES: Sequence[tuple[str, Sequence[Version], str | None]] = (
    ("the highest cursor wins", [(1, "a", LATE), (3, "b", EARLY), (2, "c", LATE)], "b"),
    ("a null is below all", [(1, "a", EARLY), (None, "b", LATE)], "a"),
    ("a null below a negative one", [(None, "a", LATE), (-1, "b", EARLY)], "b"),
    ("at one cursor the later extraction", [(1, "a", LATE), (1, "b", EARLY)], "a"),
    ("without cursors the later extraction", [(None, "a", EARLY), (None, "b", LATE)], "b"),
    ("at one time the later arrival", [(1, "a", EARLY), (1, "b", EARLY)], "b"),
    ("insert, delete", [(1, "a", EARLY), (2, None, EARLY)], None),
    ("insert, delete, insert", [(1, "a", EARLY), (2, None, EARLY), (3, "b", EARLY)], "b"),
    ("delete, insert at one cursor", [(1, None, EARLY), (1, "a", EARLY)], "a"),
    ("insert, delete at one cursor", [(1, "a", EARLY), (1, None, EARLY)], None),
    ("insert, delete, update at one cursor", [(1, "a", EARLY), (1, None, EARLY), (1, "b", EARLY)], "b"),
    ("an old deletion", [(2, "a", EARLY), (1, None, LATE)], "a"),
    ("a deletion alone", [(1, None, EARLY)], None),
    ("an update after a deletion", [(1, None, EARLY), (2, "a", LATE)], "a"),
)

EXPECTED = {id: last for id, (_, _, last) in enumerate(HISTORIES) if last is not None}


def line(id: int, version: Version) -> bytes:
    cursor, name, at = version
    return deleted(id, cursor, at=at) if name is None else item(id, cursor, name, at=at)


def test_of_each_key_the_latest_version_remains(warehouse: Warehouse) -> None:
    """By cursor, time of extraction and order of arrival; what was deleted last is gone. All in one sync."""
    lines = [line(id, version) for id, (_, versions, _) in enumerate(HISTORIES) for version in versions]

    warehouse.sync([items()], [*lines, COMPLETE])

    assert names(warehouse) == EXPECTED


@pytest.mark.share(1)
@pytest.mark.parametrize("deletes", ["copy_on_write", "merge_on_read"])
def test_of_each_key_the_latest_version_remains_from_sync_to_sync(warehouse: Warehouse, deletes: str) -> None:
    """The same with the last version of each key in a second sync.

    A key whose deletion came first and alone is not known any more: then everything is newer.
    """
    for part in (slice(-1), slice(-1, None)):
        lines = [line(id, version) for id, (_, versions, _) in enumerate(HISTORIES) for version in versions[part]]
        warehouse.sync([items()], [*lines, COMPLETE], dedup={"deletes": deletes})

    assert names(warehouse) == EXPECTED


def test_at_one_cursor_and_time_the_record_that_arrives_last_is_the_latest(warehouse: Warehouse) -> None:
    """Also if it arrives in another batch, and whichever lines of its batch are irregular."""
    with warehouse.start([items()], flush_interval_seconds=1) as running:
        running.send([item(1, 1, "a"), item(2, 1, "a"), item(3, 1, "a"), state("items", 1)])
        running.wait_for_state()
        irregular = item(3, 1, "b").replace(b'"b"', rb'"\ud800"')
        running.send([item(1, 1, "b"), item(1, 1, "c"), item(2, 1, "b"), irregular, item(3, 1, "c"), COMPLETE])
        run = running.close()

    assert run.exit_code == 0, run.report()
    assert names(warehouse) == {1: "c", 2: "b", 3: "c"}


def test_soft_deletions_are_the_latest_versions_of_their_keys(warehouse: Warehouse) -> None:
    """`dedup.cdc_deletion: soft` keeps them as they came: with key and cursor, and without the rest."""
    warehouse.sync([items()], [item(1, 1, "a"), item(2, 1, "b"), COMPLETE], dedup={"cdc_deletion": "soft"})

    lines = [deleted(1, 2), deleted(2, 0), deleted(3, 1), COMPLETE]
    warehouse.sync([items()], lines, dedup={"cdc_deletion": "soft"})

    versions = {row["id"]: (row["version"], row["name"], row["_ab_cdc_deleted_at"]) for row in warehouse.rows("items")}
    assert {id: (version, name) for id, (version, name, _) in versions.items()} == {
        1: (2, None),
        2: (1, "b"),
        3: (1, None),
    }
    assert [at is not None for _, _, at in versions.values()] == [True, False, True]


TIME: Json = {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"}
KEYS: Mapping[str, tuple[Json, Sequence[object]]] = {
    "integers": (INTEGER, [0, -1, 2**31, 2**63 - 1, None]),
    "numbers": (NUMBER, [0.1, -1.5, 12345678.25, None]),
    "texts": (STRING, ["", " ", "a", "A", "é", "e\u0301", "a\u0000", "🚀", "x" * 5000, "null", None]),
    "times": (TIME, ["1969-12-31T23:59:59.999999", "2026-01-01T00:00:00", None]),
    "booleans": (BOOLEAN, [True, False, None]),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("numeric_types", "deletes"),
    [("int/float", "copy_on_write"), ("decimal", "copy_on_write"), ("decimal", "merge_on_read")],
)
def test_keys_of_every_type_are_equal_if_their_values_are(
    warehouse: Warehouse, numeric_types: str, deletes: str
) -> None:
    """Null is a key like others. Integers beyond 64 bits are keys of decimals."""
    keys = {name: ids for name, (_, ids) in KEYS.items()}
    if numeric_types == "decimal":
        keys["integers"] = [*keys["integers"], 2**70, 2**70 + 1, -(2**70)]
    streams = [
        configured_stream(name, object_schema(id=id_type, name=STRING), mode="append_dedup", primary_key=["id"])
        for name, (id_type, _) in KEYS.items()
    ]
    for sync in (1, 2):
        lines = [
            record(name, {"id": id, "name": f"{sync}-{number}"})
            for name, ids in keys.items()
            for number, id in enumerate(ids)
        ]
        completes = [status(name, "COMPLETE") for name in KEYS]
        warehouse.sync(streams, [*lines, *completes], numeric_types=numeric_types, dedup={"deletes": deletes})

    names = {name: sorted(row["name"] for row in warehouse.rows(name)) for name in KEYS}
    assert names == {name: sorted(f"2-{number}" for number in range(len(ids))) for name, ids in keys.items()}


def test_a_record_whose_key_or_cursor_is_lost_is_rejected_whole(warehouse: Warehouse) -> None:
    """It replaces nothing: under a null key unrelated rows would. States count it as rejected."""
    warehouse.sync([items()], [item(None, 1, "null"), item(1, 1, "one"), COMPLETE])
    lost: list[bytes] = [item("x", 5, "lost"), item(2**70, 5, "lost"), item(1, "soon", "lost")]  # type: ignore[arg-type]

    run = warehouse.sync([items()], [*lost, item(2, 1, "two"), state("items", 1), COMPLETE])

    assert names(warehouse) == {None: "null", 1: "one", 2: "two"}
    (echoed,) = run.states
    assert record_count(echoed) == 1
    rejects: list[dict[str, Any]] = warehouse.lake.rejects()
    assert {reject["reason"] for reject in rejects} == {"DESTINATION_RECORD_KEY_CHANGED"}
    assert [(reject["row_id"], reject["column_name"]) for reject in rejects] == [(None, None)] * 3
