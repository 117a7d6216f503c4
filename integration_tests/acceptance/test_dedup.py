"""Airbyte's own test data, deduplicated: by one field, and by all that can be a key together, with what they hold."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from integration_tests.acceptance.expectation import Row, Schema, identifier, single_valued
from integration_tests.acceptance.pairs import Pair, find_pairs
from integration_tests.acceptance.test_airbyte_data import VERSIONS, assert_same_rows, canonical, expected_row
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, status
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.table_kinds import TABLE_KINDS

ICEBERG = TABLE_KINDS[0]

KEYS: Mapping[str, Callable[[Schema], Sequence[str]]] = {
    "by_first": lambda schema: single_valued(schema)[:1],
    "by_all": single_valued,
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_holds_the_latest_record_of_each_key(
    platform: Platform, lake: Lake, version: str, request: pytest.FixtureRequest
) -> None:
    """The second sync sends the same again: without a cursor, at one time of extraction, the later arrival is newer."""
    tables = [
        (pair, stream, lake.name(f"{pair.name}_{kind}"), key)
        for pair in find_pairs(request.config.getoption("--airbyte-data") / Path(version))
        for kind, key_of in KEYS.items()
        for stream, schema in pair.streams.items()
        if (key := key_of(schema))
    ]
    lines = [
        line for pair, where in {(id(p), w): (p, w) for p, _, w, _ in tables}.values() for line in _records(pair, where)
    ]
    statuses = [status(stream, "COMPLETE", namespace=where) for _, stream, where, _ in tables]
    for sync_id in (1, 2):
        streams = [
            configured_stream(
                stream, pair.streams[stream], namespace=where, mode="append_dedup", primary_key=key, sync_id=sync_id
            )
            for pair, stream, where, key in tables
        ]
        run = platform.write(lake.config(**ICEBERG.options), configured_catalog(*streams), [*lines, *statuses])
        assert (run.exit_code, run.errors) == (0, []), run.report()

    for pair, stream, where, key in tables:
        expected = [expected_row(row, ICEBERG, sync_id=2, generation=0) for row in latest(pair.rows(stream), key)]
        assert_same_rows(lake.rows(where, identifier(stream)), expected)


def latest(rows: Sequence[Row], key: Sequence[str]) -> Sequence[Row]:
    """Return the last row of each key. Records of which a part of the key was changed, or rounded, are none."""
    last_rows: dict[str, Row] = {}
    for row in sorted(rows, key=lambda row: row.extracted_at):
        if not ({change["field"] for change in row.changes} | row.rounded) & set(key):
            last_rows[canonical([_unsigned(row.values[identifier(name)]) for name in key])] = row
    return [*last_rows.values()]


def _unsigned(value: object) -> object:
    return 0.0 if value == 0 and isinstance(value, float) else value


def _records(pair: Pair, where: str) -> list[bytes]:
    return [line for line in pair.under(where) if b'"STATE"' not in line]
