"""What PyAirbyte's users do: write with each strategy, and its own smoke test of destinations."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from integration_tests.clients.conftest import PyAirbyte
from integration_tests.harness.lake import Lake
from integration_tests.harness.runs.launch import COMMAND


def counts(lake: Lake) -> Mapping[str, int]:
    """Return the number of rows of each table."""
    return {table: lake.read(database, table).num_rows for database, table in lake.tables()}


def report(printed: str) -> Mapping[str, Any]:
    """Return the report of a smoke test, before which PyAirbyte prints the progress of syncs."""
    smoke_report: Mapping[str, Any] = json.loads(printed[printed.index("\n{") :])
    return smoke_report


@pytest.mark.parametrize(
    ("strategy", "users"),
    [
        pytest.param("auto", 250, id="the default strategy is one row for each key"),
        pytest.param("merge", 250, id="merged is one row for each key"),
        pytest.param("append", 450, id="appended are the rows of both syncs"),
        pytest.param("replace", 250, id="replaced are all rows"),
    ],
)
def test_two_syncs_leave_what_their_strategy_promises(
    lake: Lake, pyairbyte: PyAirbyte, strategy: str, users: int
) -> None:
    pyairbyte.sync(200, strategy)
    assert counts(lake) == {"users": 200, "purchases": 200, "products": 100}
    first = {row["id"]: row["updated_at"] for row in lake.rows(lake.database, "users")}

    pyairbyte.sync(250, strategy)

    rows = lake.rows(lake.database, "users")
    assert len(rows) == users
    latest = {row["id"]: row["updated_at"] for row in sorted(rows, key=lambda row: row["updated_at"])}
    assert sorted(latest) == [*range(1, 251)]
    if strategy != "append":
        assert [key for key in first if latest[key] <= first[key]] == [], "an old version of a row is there"


def test_pyairbyte_s_smoke_test_passes_and_passes_again_on_the_tables_that_it_made(
    lake: Lake, pyairbyte: PyAirbyte
) -> None:
    arguments = (f"--destination={COMMAND}", f"--config={pyairbyte.config}", "--scenarios=all")
    smoke_test = ("destination-smoke-test", *arguments)

    once = report(pyairbyte.pyab(*smoke_test))
    rows = counts(lake)

    # Three records of six with three keys have lost; the preflight's three rows are not among those delivered.
    latest = lake.rows(once["namespace"], "duplicate_primary_keys")
    assert {row["id"]: row["updated_value"] for row in latest} == {1: "third", 2: "second", 3: "first"}
    assert sum(rows.values()) == once["records_delivered"] - 3 + 3
    second_report = report(pyairbyte.pyab(*smoke_test, f"--reuse-namespace={once['namespace']}"))
    assert second_report["records_delivered"] == once["records_delivered"]
    assert counts(lake) == rows


def test_pyairbyte_validates_the_connector(pyairbyte: PyAirbyte) -> None:
    pyairbyte.pyab("validate", f"--connector={COMMAND}", f"--config={pyairbyte.config}")
