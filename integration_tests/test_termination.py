"""The end of a sync that is not its own: SIGTERM, and a platform that has gone."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from integration_tests.lake import Lake
from integration_tests.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.platform import COMMAND, Platform, record_count

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"id": {"type": "integer"}}}


def catalog(generation: int) -> dict[str, object]:
    """Orders are appended, users replaced."""
    return configured_catalog(
        configured_stream("orders", SCHEMA),
        configured_stream("users", SCHEMA, generation=generation, minimum=generation),
    )


def records(stream: str, *ids: int) -> list[bytes]:
    return [record(stream, {"id": id_}) for id_ in ids]


def complete() -> list[bytes]:
    return [status("orders", "COMPLETE"), status("users", "COMPLETE")]


def ids(lake: Lake, table: str) -> list[int]:
    return sorted(row["id"] for row in lake.rows(lake.database, table))


def test_sigterm_commits_what_came_acknowledges_it_and_replaces_nothing(lake: Lake, platform: Platform) -> None:
    lines = [*records("orders", 1), *records("users", 1, 2), *complete()]
    assert platform.write(lake.config(), catalog(1), lines).exit_code == 0

    with platform.start(lake.config(), catalog(2)) as running:
        running.send([*records("orders", 2, 3), state("orders", 1), *records("users", 3), state("users", 1)])
        running.send([state("orders", 2, id=9), *records("users", 4)])
        running.wait_for_log("users: 2 records received, 0 committed.")
        stopped = running.terminate()

    assert stopped.exit_code == 143, stopped.report()
    assert stopped.errors == []
    assert {(s.body["stream"]["stream_descriptor"]["name"], record_count(s)) for s in stopped.states} == {
        ("orders", 2.0),
        ("orders", 0.0),
        ("users", 1.0),
    }
    assert ids(lake, "orders") == [1, 2, 3]
    assert ids(lake, "users") == [1, 2]

    # The next attempt of the same generation starts behind the states that came out.
    resumed = platform.write(lake.config(), catalog(2), [*records("users", 5), state("users", 2), *complete()])

    assert resumed.exit_code == 0, resumed.report()
    assert ids(lake, "orders") == [1, 2, 3]
    assert ids(lake, "users") == [3, 4, 5]


def test_sigterm_before_anything_has_come_ends_at_once(lake: Lake, platform: Platform) -> None:
    with platform.start(lake.config(), catalog(1)) as running:
        running.wait_for_log("Progress after")
        stopped = running.terminate()

    assert (stopped.exit_code, stopped.states, stopped.errors) == (143, [], []), stopped.report()


def test_a_platform_that_no_longer_listens_ends_the_sync_with_nothing_acknowledged(lake: Lake, tmp_path: Path) -> None:
    """What was received is in the table all the same: it will be sent, and be there, again."""
    config, configured, stderr = tmp_path / "config.json", tmp_path / "catalog.json", tmp_path / "stderr"
    config.write_text(json.dumps(lake.config()))
    configured.write_text(json.dumps(catalog(1)))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    read_end, write_end = os.pipe()
    with stderr.open("wb") as log:
        connector = subprocess.Popen(
            [COMMAND, "write", "--config", str(config), "--catalog", str(configured)],
            stdin=subprocess.PIPE,
            stdout=write_end,
            stderr=log,
            env=os.environ | {"TMPDIR": str(temporary)},
        )
    os.close(write_end)
    os.close(read_end)

    connector.communicate(b"\n".join([*records("orders", 1, 2), state("orders", 1), *complete()]), timeout=120)

    assert connector.returncode == 1, stderr.read_text()
    assert ids(lake, "orders") == [1, 2]
    assert list(temporary.iterdir()) == []
