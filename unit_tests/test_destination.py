"""The connector's class: failures in the CDK's terms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from airbyte_cdk import AirbyteMessage, Status

from destination_datalake.aws.access import mask_secrets, register_secrets
from destination_datalake.cli import _check
from destination_datalake.destination import DestinationDatalake
from destination_datalake.protocol.stdout import Stdout

VALID = {
    "credentials": {"credentials_title": "IAM User", "aws_access_key_id": "AKIA1", "aws_secret_access_key": "x"},
    "region": "eu-west-1",
    "bucket_name": "lake",
    "lakeformation_database_name": "raw",
}


def check(directory: Path, config: object) -> list[AirbyteMessage]:
    """Check this configuration; return the messages."""
    (directory / "config.json").write_text(json.dumps(config))
    connector = DestinationDatalake()
    return list(connector.run_cmd(connector.parse_args(["check", "--config", str(directory / "config.json")])))


def test_a_check_with_an_invalid_option_answers_failed(tmp_path: Path) -> None:
    (message,) = check(tmp_path, {**VALID, "region": "Ireland"})

    assert message.connectionStatus is not None
    assert message.connectionStatus.status == Status.FAILED
    assert message.connectionStatus.message is not None
    assert message.connectionStatus.message.startswith('region "Ireland" is not valid.')


def test_a_check_without_a_configuration_answers_failed(tmp_path: Path) -> None:
    (message,) = check(tmp_path, ["no object"])

    assert message.connectionStatus is not None
    assert message.connectionStatus.status == Status.FAILED


def test_the_answer_of_a_check_is_masked_like_every_message(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # Given a text of others that repeats a secret, here that of an option
    (tmp_path / "config.json").write_text(json.dumps({**VALID, "region": "hunter2-hunter2"}))
    register_secrets("hunter2-hunter2")

    _check(str(tmp_path / "config.json"), Stdout(1, mask_secrets))

    answer = json.loads(capfd.readouterr().out)["connectionStatus"]
    assert answer["status"] == "FAILED"
    assert answer["message"].startswith('region "****" is not valid.')
