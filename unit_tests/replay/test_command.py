"""The command line of `replay`: the name of the target table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from destination_datalake.config.options import Config
from destination_datalake.replay.command import run_replay
from destination_datalake.tables.naming import TableNaming
from integration_tests.harness.messages import configured_stream
from unit_tests.archive.archive import ArchivedTable, Archiving
from unit_tests.cloud import BUCKET, Cloud
from unit_tests.config.examples import options


@pytest.mark.parametrize(
    ("stream", "arguments", "message"),
    [
        ("orders", [], ""),
        ("京都", [], ""),
        ("京都", ["--replace"], ""),
        ("o" * 255, [], "with the suffix __replay, its name would exceed 255 bytes. Set --into."),
        ("o" * 255, ["--replace"], "suffix __rebuild, its name would exceed 255 bytes. Choose a shorter name with"),
        ("o" * 255, ["--into", "others"], ""),
        ("orders", ["--into", "orders"], "--into orders: the name must differ"),
        ("orders", ["--into", "Orders"], "--into Orders: the name must differ"),
        ("orders", ["--into", ""], "--into : the name must differ"),
    ],
)
def test_a_target_has_a_valid_name(
    cloud: Cloud,
    tmp_path: Path,
    capsysbinary: pytest.CaptureFixture[bytes],
    stream: str,
    arguments: list[str],
    message: str,
) -> None:
    configuration = options(
        region="us-east-1",
        bucket_name=BUCKET,
        bucket_prefix="lake",
        lakeformation_database_name="shop",
        naming={"style": "preserve"},
    )
    (table,) = TableNaming.from_config(Config.parse(configuration)).candidates(stream)
    sync = Archiving(cloud, "0a", catalog=configured_stream(stream, {}))
    sync.ledger.begin(sync.stream, ArchivedTable(name=table))
    config = tmp_path / "config.json"
    config.write_text(json.dumps(configuration))

    code = run_replay(["--config", str(config), "--stream", stream, "--dry-run", *arguments])

    _, errors = capsysbinary.readouterr()
    assert message in errors.decode()
    assert (code == 1) == bool(message), errors
