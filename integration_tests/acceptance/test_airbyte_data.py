"""Airbyte's own test data, through the command line, read back by other engines, against an independent expectation."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from emulated_aws.server import AwsServer

from integration_tests.acceptance.conftest import APPEND, ARCHIVED, DESTINATIONS, Landing
from integration_tests.acceptance.expectation import WRONG_TYPE, Row, columns, identifier
from integration_tests.acceptance.pairs import Pair, find_pairs, is_record, is_state
from integration_tests.archive import archived
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream
from integration_tests.harness.runs.output import Run, record_count, same_text, without_stats
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import PARTITIONED_KINDS, TABLE_KINDS, TableKind

VERSIONS = ("v0", "v1")
METADATA = ("_airbyte_raw_id", "_airbyte_extracted_at", "_airbyte_meta", "_airbyte_generation_id")


class Case(NamedTuple):
    """One table of the landing."""

    pair: Pair
    stream: str
    destination: str


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "landing" not in metafunc.fixturenames:
        return
    folder: Path = metafunc.config.getoption("--airbyte-data")
    landings = [(version, kind.name) for version in VERSIONS for kind in TABLE_KINDS]
    landings += [("v1", kind.name) for kind in PARTITIONED_KINDS]
    if "case" not in metafunc.fixturenames:
        metafunc.parametrize("landing", landings, indirect=True, ids="-".join)
        return
    cases = [
        pytest.param(
            (version, kind), Case(pair, stream, destination), id=f"{version}-{kind}-{pair.name}-{stream}-{destination}"
        )
        for version, kind in landings
        for pair in find_pairs(folder / version)
        for stream in pair.streams
        for destination in DESTINATIONS
    ]
    metafunc.parametrize(("landing", "case"), cases, indirect=["landing"])


def test_both_syncs_succeed(landing: Landing) -> None:
    for sync in landing.syncs:
        assert (sync.run.exit_code, sync.run.errors) == (0, []), sync.run.report()


def test_every_state_comes_back_in_order_with_nothing_but_its_stats_added(landing: Landing) -> None:
    for sync in landing.syncs:
        assert_states_echoed(sync.lines, sync.run)


def test_every_state_counts_the_records_since_the_one_before(landing: Landing) -> None:
    for sync in landing.syncs:
        assert [record_count(state) for state in sync.run.states] == records_between_states(sync.lines)


def test_nothing_unfinished_is_left_in_the_bucket(landing: Landing) -> None:
    assert landing.lake.unfinished_uploads() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_the_archive_has_every_record_of_both_syncs_byte_for_byte(
    land: Callable[[str, str], Landing], version: str
) -> None:
    landing = land(version, ARCHIVED)
    sent: dict[tuple[str, str], list[bytes]] = {}
    for line in (line for sync in landing.syncs for line in sync.lines if is_record(line)):
        record = json.loads(line)["record"]
        sent.setdefault((record["namespace"], identifier(record["stream"])), []).append(line + b"\n")

    archived_lines = {table: archived.lines(landing.lake, table[1], table[0]) for table in sent}

    assert archived_lines == {table: sorted(lines) for table, lines in sent.items()}


def test_a_table_holds_what_was_sent(landing: Landing, case: Case) -> None:
    pair, stream, destination = case
    # An append table has the rows of both syncs; a replaced one those of the second.
    seen = landing.syncs if destination == APPEND else landing.syncs[1:]
    expected = [
        expected_row(row, landing.kind, sync_id=sync.sync_id, generation=sync.generations[destination])
        for sync in seen
        for row in pair.rows(stream)
    ]
    table = landing.lake.read(landing.namespace(pair, destination), identifier(stream))

    assert table.column_names == [*METADATA, *columns(pair.streams[stream])]
    assert_same_rows(table.to_pylist(), expected)


def test_messages_land_exactly_as_they_are(
    platform: Platform, lake: Lake, table_kind: TableKind, request: pytest.FixtureRequest
) -> None:
    # Given messages with records, a state and a status per stream, none of them touched
    pair = the_pair(request, "v0", "edge_case")
    catalog = configured_catalog(
        *(configured_stream(name, schema, generation=3, sync_id=7) for name, schema in pair.streams.items())
    )
    # When they are written
    run = platform.write(lake.config(**table_kind.options), catalog, pair.lines)
    # Then each stream is a table of the default database
    assert run.exit_code == 0, run.report()
    assert_states_echoed(pair.lines, run)
    assert lake.tables() == sorted((lake.database, identifier(name)) for name in pair.streams)
    for stream in pair.streams:
        expected = [expected_row(row, table_kind, sync_id=7, generation=3) for row in pair.rows(stream)]
        assert_same_rows(lake.rows(lake.database, identifier(stream)), expected)


def test_every_namespace_becomes_the_database_that_airbyte_expects(
    platform: Platform, table_kind: TableKind, request: pytest.FixtureRequest
) -> None:
    # Given a platform without generation ids, a state of the legacy kind, and no statuses
    cases = json.loads((request.config.getoption("--airbyte-data") / "namespace_test_cases.json").read_bytes())
    databases = {case["namespace"]: case["normalized"] for case in cases if case["enabled"]}
    pair = the_pair(request, "v1", "namespace")
    (stream, schema), *_ = pair.streams.items()
    catalog = configured_catalog(
        *(
            configured_stream(
                stream, schema, namespace=where, mode="overwrite", generation=None, minimum=None, sync_id=None
            )
            for where in databases
        )
    )
    lines = [line for where in databases for line in pair.under(where)]
    # The names are given, so this lake needs an account of its own.
    with AwsServer() as aws:
        lake = Lake(aws.endpoint_url)
        # When
        run = platform.write(lake.config(**table_kind.options), catalog, lines)
        # Then
        assert run.exit_code == 0, run.report()
        assert_states_echoed(lines, run)
        assert lake.tables() == sorted((database, identifier(stream)) for database in databases.values())
        for database in databases.values():
            assert [row["field1"] for row in lake.rows(database, identifier(stream))] == [True]


def assert_states_echoed(lines: Iterable[bytes], run: Run) -> None:
    sent = [line for line in lines if is_state(line)]
    returned = [without_stats(state.raw) for state in run.states]
    assert len(returned) == len(sent)
    for line, echo in zip(sent, returned, strict=True):
        assert same_text(line, echo), f"sent {line!r}, returned {echo!r}"


def records_between_states(lines: Iterable[bytes]) -> list[float]:
    counts, records = [], 0.0
    for line in lines:
        if is_record(line):
            records += 1
        elif is_state(line):
            counts.append(records)
            records = 0.0
    return counts


def expected_row(row: Row, kind: TableKind, *, sync_id: int, generation: int) -> dict[str, object]:
    # The numbers that JSON has no word for; Airbyte's data has them in columns of one plain word only.
    unspeakable = [
        name
        for name, value in row.values.items()
        if not kind.is_typed and isinstance(value, float) and not math.isfinite(value)
    ]
    nulled = [{"field": name, "change": "NULLED", "reason": WRONG_TYPE} for name in unspeakable]
    meta = {"sync_id": sync_id, "changes": [*row.changes, *nulled]}
    return {
        "_airbyte_extracted_at": as_read(row.extracted_at, kind),
        "_airbyte_meta": meta,
        "_airbyte_generation_id": generation,
    } | {name: None if name in unspeakable else as_read(value, kind) for name, value in row.values.items()}


def as_read(value: Any, kind: TableKind) -> Any:
    """Return a value as a reader of this kind of table sees it."""
    match value:
        case datetime() if value.tzinfo and not kind.keeps_zones:
            return value.astimezone(UTC).replace(tzinfo=None)
        case list():
            return [as_read(element, kind) for element in value]
        case dict():
            return {name: as_read(member, kind) for name, member in value.items()}
        case _:
            return value


def assert_same_rows(read: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]]) -> None:
    """Compare two bags of rows by value; the ids that the connector makes up need only be there and differ."""
    rows = list(read)
    ids = [row["_airbyte_raw_id"] for row in rows]
    assert len({identity for identity in ids if identity}) == len(rows), "raw ids are missing or repeated"
    without_ids = [{name: value for name, value in row.items() if name != METADATA[0]} for row in rows]
    actual, wanted = Counter(map(canonical, without_ids)), Counter(map(canonical, expected))
    assert (sorted((actual - wanted).elements()), sorted((wanted - actual).elements())) == ([], []), (
        "rows (that were not sent, that are missing)"
    )


def canonical(value: Any) -> str:
    """Return a text that two values share when they are equal: NaN equals NaN, 1 is not 1.0, and zones are UTC."""
    match value:
        case datetime() if value.tzinfo:
            return value.astimezone(UTC).isoformat()
        case dict():
            return "{" + ", ".join(f"{name}: {canonical(member)}" for name, member in sorted(value.items())) + "}"
        case list():
            return "[" + ", ".join(map(canonical, value)) + "]"
        case _:
            return repr(value)


def the_pair(request: pytest.FixtureRequest, version: str, name: str) -> Pair:
    (pair,) = (p for p in find_pairs(request.config.getoption("--airbyte-data") / version) if p.name == name)
    return pair
