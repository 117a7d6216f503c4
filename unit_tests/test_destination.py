"""The connector's class: failures in the CDK's terms."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airbyte_cdk import AirbyteMessage, AirbyteTracedException, FailureType, Status

from destination_datalake.destination import DestinationDatalake
from destination_datalake.spark.engine import Engine
from destination_datalake.termination import Termination

VALID = {
    "credentials": {"credentials_title": "IAM User", "aws_access_key_id": "AKIA1", "aws_secret_access_key": "x"},
    "region": "eu-west-1",
    "bucket_name": "lake",
    "lakeformation_database_name": "raw",
}


class UnusedEngine(Engine):
    """A Spark that is never started."""

    def __init__(self) -> None:
        pass

    @property
    def local(self) -> bool:
        return True

    def stop(self, *, orderly: bool = False) -> None:
        pass


def run(directory: Path, command: str, config: object, **catalog: Any) -> list[AirbyteMessage]:
    """Run a command with these files; return its messages."""
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "catalog.json").write_text(json.dumps(catalog))
    arguments = [command, "--config", str(directory / "config.json")]
    if command == "write":
        arguments += ["--catalog", str(directory / "catalog.json")]
    termination = Termination()
    connector = DestinationDatalake(spark=UnusedEngine(), termination=termination)
    try:
        return list(connector.run_cmd(connector.parse_args(arguments)))
    finally:
        termination.close()


@pytest.fixture(autouse=True)
def _stdin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with Path("/dev/null").open(encoding="utf-8") as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        yield


def test_a_check_with_an_invalid_option_answers_failed(tmp_path: Path) -> None:
    (message,) = run(tmp_path, "check", {**VALID, "region": "Ireland"})

    assert message.connectionStatus is not None
    assert message.connectionStatus.status == Status.FAILED
    assert message.connectionStatus.message is not None
    assert message.connectionStatus.message.startswith('region "Ireland" is not valid.')


def test_a_check_without_a_configuration_answers_failed(tmp_path: Path) -> None:
    (message,) = run(tmp_path, "check", ["no object"])

    assert message.connectionStatus is not None
    assert message.connectionStatus.status == Status.FAILED


def test_a_write_with_an_invalid_option_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(AirbyteTracedException, match='region "Ireland" is not valid') as raised:
        run(tmp_path, "write", {**VALID, "region": "Ireland"})

    assert raised.value.failure_type == FailureType.config_error
    assert raised.value.internal_message == raised.value.message


@pytest.mark.parametrize(
    ("stream", "failure_type"),
    [
        ({"destination_sync_mode": "append_dedup"}, FailureType.config_error),
        ({"generation_id": 3, "minimum_generation_id": 2, "sync_id": 1}, FailureType.system_error),
    ],
    ids=["mode", "hybrid refresh"],
)
def test_a_catalog_that_is_refused_fails_the_write_with_its_type(
    tmp_path: Path, stream: dict[str, Any], failure_type: FailureType
) -> None:
    orders = {"name": "orders", "json_schema": {}, "supported_sync_modes": ["full_refresh"]}
    configured = {"stream": orders, "sync_mode": "full_refresh", "destination_sync_mode": "append", **stream}

    with pytest.raises(AirbyteTracedException, match="Stream orders") as raised:
        run(tmp_path, "write", VALID, streams=[configured])

    assert raised.value.failure_type == failure_type
