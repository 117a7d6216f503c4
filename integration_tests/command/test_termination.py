"""The end of a sync that is not its own: SIGTERM, and a platform that has gone."""

import fcntl
import json
import os
import signal
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from destination_datalake.sync.conductor import TERMINATION_SECONDS
from integration_tests.harness.lake import Lake
from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status
from integration_tests.harness.runs.output import record_count
from integration_tests.harness.runs.platform import Platform
from integration_tests.harness.runs.warm import WarmLaunch, WarmProcess
from integration_tests.harness.table_kinds import TableKind

pytestmark = pytest.mark.share(2)

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


def test_sigterm_commits_what_came_acknowledges_it_and_replaces_nothing(
    lake: Lake, platform: Platform, table_kind: TableKind
) -> None:
    config = lake.config(**table_kind.options)
    lines = [*records("orders", 1), *records("users", 1, 2), *complete()]
    assert platform.write(config, catalog(1), lines).exit_code == 0

    with platform.start(config, catalog(2)) as running:
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
    resumed = platform.write(config, catalog(2), [*records("users", 5), state("users", 2), *complete()])

    assert resumed.exit_code == 0, resumed.report()
    assert ids(lake, "orders") == [1, 2, 3]
    assert ids(lake, "users") == [3, 4, 5]


@pytest.mark.slow
def test_sigterm_before_anything_has_come_ends_at_once(lake: Lake, platform: Platform) -> None:
    with platform.start(lake.config(), catalog(1)) as running:
        running.wait_for_log("Progress after")
        stopped = running.terminate()

    assert (stopped.exit_code, stopped.states, stopped.errors) == (143, [], []), stopped.report()


def test_a_sync_with_no_input_at_all_is_incomplete(lake: Lake, platform: Platform) -> None:
    """A source that failed at once: the tables are created, nothing else happens, and the platform gets an error."""
    run = platform.write(lake.config(), catalog(1), [])

    assert run.exit_code == 1
    assert {error["failure_type"] for error in run.errors} == {"transient_error"}
    assert ids(lake, "orders") == []


def start(lake: Lake, folder: Path, launch: WarmLaunch, stdout: int) -> WarmProcess:
    """Start a sync that writes to this descriptor, in a temporary directory of its own under `folder`."""
    config, configured = folder / "config.json", folder / "catalog.json"
    config.write_text(json.dumps(lake.config()))
    configured.write_text(json.dumps(catalog(1)))
    (folder / "tmp").mkdir()
    arguments = ["write", "--config", str(config), "--catalog", str(configured)]
    with (folder / "stderr").open("wb") as log:
        return launch.with_stdout(stdout)(arguments, {**os.environ, "TMPDIR": str(folder / "tmp")}, log)


def finish(connector: WarmProcess, lines: list[bytes]) -> int:
    """Send these lines, end the input, and return the exit code."""
    with suppress(BrokenPipeError):
        connector.stdin.write(b"\n".join(lines))
        connector.stdin.close()
    return connector.wait(120)


def test_a_platform_that_no_longer_listens_ends_the_sync_with_nothing_acknowledged(
    lake: Lake, launch: WarmLaunch, tmp_path: Path
) -> None:
    """What was received is in the table all the same: it will be sent, and be there, again."""
    read_end, write_end = os.pipe()
    with start(lake, tmp_path, launch, write_end) as connector:
        os.close(write_end)
        os.close(read_end)
        exit_code = finish(connector, [*records("orders", 1, 2), state("orders", 1), *complete()])

    assert exit_code == 1, (tmp_path / "stderr").read_text()
    assert ids(lake, "orders") == [1, 2]
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_state_that_finds_no_room_on_the_disk_of_stdout_fails_the_sync(
    lake: Lake, launch: WarmLaunch, tmp_path: Path
) -> None:
    with Path("/dev/full").open("wb") as full, start(lake, tmp_path, launch, full.fileno()) as connector:
        exit_code = finish(connector, [*records("orders", 1, 2), state("orders", 1), *complete()])

    assert exit_code == 1, (tmp_path / "stderr").read_text()
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.slow
def test_sigterm_ends_a_sync_whose_output_nobody_reads(lake: Lake, launch: WarmLaunch, tmp_path: Path) -> None:
    """Within the platform's patience of 60 seconds, less here; what was read is in the table all the same."""
    assert TERMINATION_SECONDS < 60
    read_end, write_end = os.pipe()
    states = [state("orders", number) for number in range(2000)]
    with start(lake, tmp_path, launch.with_patience(5), write_end) as connector:
        os.close(write_end)
        connector.stdin.write(b"\n".join([*states, *records("orders", 1, 2), b""]))
        connector.stdin.flush()
        while unread(read_end) < 60_000 or unread(connector.stdin.fileno()):
            time.sleep(0.1)

        connector.send_signal(signal.SIGTERM)

        assert connector.wait(60) == 143, (tmp_path / "stderr").read_text()
    os.close(read_end)
    assert ids(lake, "orders") == [1, 2]


def unread(pipe: int) -> int:
    """Bytes that wait in a pipe."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.slow
def test_a_disk_that_is_full_ends_the_sync_with_all_that_was_read_safe(
    lake: Lake, launch: WarmLaunch, tmp_path: Path
) -> None:
    """A limit on the size of files stands for it."""
    platform = Platform(tmp_path, launch.with_files_of(6 * 1024 * 1024))
    padded = [record("orders", {"id": id_, "padding": "x" * 1000}) for id_ in range(10_000)]

    run = platform.write(lake.config(), catalog(1), [*records("users", 1), state("users", 1), *padded])

    (error,) = run.errors
    assert (run.exit_code, error["failure_type"]) == (1, "transient_error")
    assert "TMPDIR" in error["message"]
    assert len(run.states) == 1
    landed = ids(lake, "orders")
    assert landed == list(range(len(landed)))
    assert 1000 < len(landed) < 10_000
