"""The command `maintain`: which tables it finds, what it does and prints."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from destination_datalake.maintenance.command import run_maintain
from destination_datalake.maintenance.steps import Maintainer
from destination_datalake.protocol.catalog import StreamId
from destination_datalake.tables.glue.compare_and_set import METADATA
from destination_datalake.tables.iceberg.commit import TableOperations
from unit_tests.cloud import BUCKET, Cloud, ungoverned
from unit_tests.config.examples import options
from unit_tests.maintenance.lake import Shop

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run the command with options and arguments; return the exit code, lines of standard output, standard error."""

    def run(*arguments: str, **changes: Any) -> tuple[int, list[str], str]:
        path = tmp_path / "config.json"
        path.write_text(
            json.dumps(options(**{"region": "us-east-1", "bucket_name": BUCKET, "bucket_prefix": "lake"} | changes))
        )
        code = run_maintain(["--config", str(path), *arguments])
        out, errors = capsysbinary.readouterr()
        return code, out.decode().splitlines(), errors.decode()

    return run


def test_each_table_and_step_has_a_line(cloud: Cloud, run: Run) -> None:
    shop = Shop(cloud)
    shop.commit(shop.open(), 1)
    cloud.access.client("glue").create_database(DatabaseInput={"Name": "raw"})

    assert run() == (
        0,
        [
            "shop.orders compaction: nothing to compact",
            "shop.orders expiry: no snapshots expired",
            "shop.orders orphans: no orphan files",
        ],
        "",
    )


def test_a_table_that_cannot_be_read_fails_and_others_do_not(cloud: Cloud, run: Run) -> None:
    shop, broken = Shop(cloud), StreamId("shop", "broken")
    shop.open()
    shop.open(broken)
    metadata = TableOperations(shop.name(broken), ungoverned(cloud.access)).load().metadata_location
    cloud.access.client("s3").delete_object(Bucket=BUCKET, Key=metadata.removeprefix(f"s3://{BUCKET}/"))
    METADATA.forget(metadata)

    code, lines, _ = run("--stream", "shop.orders", "--stream", "shop.broken")

    assert code == 1
    assert [line.startswith("shop.broken") and metadata in line for line in lines] == [True] * 3 + [False] * 3
    assert lines[3:] == [
        "shop.orders compaction: nothing to compact",
        "shop.orders expiry: no snapshots expired",
        "shop.orders orphans: no orphan files",
    ]


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://169.254.169.254/latest"])
def test_metadata_outside_s3_fails_with_a_sentence(cloud: Cloud, run: Run, location: str) -> None:
    shop = Shop(cloud)
    shop.open()
    shop.set_metadata_location(location)

    code, lines, errors = run("--stream", "shop.orders")

    assert (code, len(lines)) == (1, 3)
    for line in lines:
        assert line.startswith("shop.orders ")
        assert f"'{location}', which is not an S3 address." in line
        assert "Correct the table's metadata_location" in line
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "changes", "sentence"),
    [
        ((), {"region": 5}, "region"),
        (("--stream", "shop.items"), {}, "--stream shop.items: this configuration has no Iceberg table"),
        ((), {"lakeformation_database_name": "none"}, "Cannot maintain the tables (Glue, GetTables)"),
    ],
)
def test_what_cannot_be_done_at_all_is_said_beside(
    cloud: Cloud, run: Run, arguments: tuple[str, ...], changes: dict[str, Any], sentence: str
) -> None:
    assert cloud.objects() == {}

    code, lines, errors = run(*arguments, **changes)

    assert (code, lines) == (1, [])
    assert errors.startswith(sentence)


def test_without_tables_there_is_nothing_to_do(cloud: Cloud, run: Run) -> None:
    cloud.access.client("glue").create_database(DatabaseInput={"Name": "raw"})

    assert run() == (0, [], "The command found no Iceberg tables for this configuration.\n")


def test_where_glue_maintains_the_command_says_so(cloud: Cloud, run: Run) -> None:
    cloud.access.client("glue").create_database(DatabaseInput={"Name": "raw"})
    role = "arn:aws:iam::123456789012:role/optimizers"

    _, _, errors = run(maintenance={"mode": "glue", "role_arn": role})

    assert errors.startswith("Note: maintenance.mode is glue")


def test_a_signal_ends_the_command_between_steps(cloud: Cloud, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(cloud)
    shop.commit(shop.open(), 1)
    whole = Maintainer.compact

    def compact(maintainer: Maintainer, table: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return whole(maintainer, table)

    monkeypatch.setattr(Maintainer, "compact", compact)
    code, lines, _ = run("--stream", "shop.orders")

    assert code == 143
    assert {line.partition(": ")[2] for line in lines} == {"the step reached its time limit; the next run continues"}


@pytest.mark.parametrize("arguments", [[], ["--config"], ["--config", "x", "--what"]])
def test_a_wrong_command_line_exits_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run_maintain(arguments)

    assert exit_.value.code == 2
