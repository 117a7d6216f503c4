"""The end of a sync before its time: SIGTERM, a platform that stops listening, no input at all."""

import json
import os
from pathlib import Path

from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import (
    configured_catalog,
    configured_stream,
    record,
    state,
    status,
)
from integration_tests.harness.runs.warm import WarmLaunch
from integration_tests.harness.table_kinds import TableKind
from integration_tests.harness.warehouse import INTEGER, Warehouse, object_schema

SCHEMA = object_schema(id=INTEGER)
ORDERS, USERS = configured_stream("orders", SCHEMA), configured_stream("users", SCHEMA)
COMPLETE = status("orders", "COMPLETE")
BOTH_COMPLETE = [COMPLETE, status("users", "COMPLETE")]


def order(id: int) -> bytes:
    return record("orders", {"id": id})


def test_sigterm_commits_what_was_read(warehouse: Warehouse) -> None:
    """Exit code 143; what had been read is in the table and its state is out; nothing is replaced."""
    warehouse.sync([configured_stream("orders", SCHEMA, generation=1)], [order(1), COMPLETE])
    replacing = configured_stream("orders", SCHEMA, generation=2, minimum=2)

    quiet = configured_stream("quiet", SCHEMA)

    with warehouse.start([replacing, USERS, quiet], flush_interval_seconds=3600) as running:
        running.send(
            [
                order(2),
                state("orders", 2, id=1),
                record("users", {"id": 3}),
                state("users", 3, id=2),
                state("quiet", 0, id=3),
            ]
        )
        running.wait_for_state()
        run = running.terminate()

    assert run.exit_code == 143
    assert {answer.body["id"] for answer in run.states} == {1, 2, 3}
    assert warehouse.ids("users") == [3]
    assert warehouse.ids("orders") == [1]
    warehouse.sync([replacing], [order(4), COMPLETE])
    assert warehouse.ids("orders") == [2, 4]


def test_sigterm_without_anything_read_ends_at_once(warehouse: Warehouse) -> None:
    """Also while everything is still starting."""
    with warehouse.start([ORDERS]) as running:
        running.send([state("orders", 0)])
        running.wait_for_state()
        run = running.terminate()

    assert run.exit_code == 143
    assert run.errors == []


def test_a_platform_that_stops_listening_ends_the_sync(
    lake: Lake, launch: WarmLaunch, table_kind: TableKind, tmp_path: Path
) -> None:
    """Nothing can be acknowledged any more: the connector ends with a failure instead of waiting."""
    options = {"config": lake.config(**table_kind.options), "catalog": configured_catalog(ORDERS)}
    arguments = ["write"]
    for name, content in options.items():
        path = tmp_path / name
        path.write_text(json.dumps(content))
        arguments += [f"--{name}", str(path)]
    with (tmp_path / "stderr").open("wb") as stderr:
        process = launch(arguments, {**os.environ, "TMPDIR": str(tmp_path)}, stderr)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(state("orders", 0) + b"\n")
    process.stdin.flush()
    while b'"STATE"' not in process.stdout.readline():
        pass

    process.stdout.close()
    process.stdin.write(b"\n".join([order(1), state("orders", 1), COMPLETE, b""]))
    process.stdin.close()

    assert process.wait(120) == 1


def test_a_sync_with_no_input_at_all_is_incomplete(warehouse: Warehouse) -> None:
    """A source that failed at once: the table is created, nothing else happens, and the platform gets an error."""
    run = warehouse.attempt([ORDERS], [])

    assert run.exit_code == 1
    assert [error["failure_type"] for error in run.errors] == ["transient_error"]
    assert warehouse.rows("orders") == []
