"""The servers that options name, and whether they answer."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.spark.connect import places
from destination_datalake.spark.failure import SparkFailed
from unit_tests.config.examples import options
from unit_tests.spark.connect.server import Server

ROLE = "arn:aws:iam::123456789012:role/spark"


def config(**spark: Any) -> Config:
    return Config.parse(options(spark=spark))


@pytest.mark.parametrize(
    ("spark", "name", "is_fresh"),
    [
        ({"remote": "sc://lake:15002/;use_ssl=true"}, "the Spark Connect server sc://lake:15002", False),
        (
            {"emr_serverless": {"application_id": "00f1example", "execution_role_arn": ROLE}},
            "the EMR Serverless application 00f1example",
            True,
        ),
        ({"glue_session": {"role_arn": ROLE}}, "AWS Glue", True),
    ],
)
def test_messages_name_the_server_without_its_parameters(spark: dict[str, Any], name: str, *, is_fresh: bool) -> None:
    launcher = places._launcher(config(**spark))

    assert (launcher.name, launcher.is_fresh) == (name, is_fresh)


def test_a_check_opens_a_session_and_ends_it() -> None:
    with Server(version="4.0.5", token="open-sesame") as server:
        assert places.server_version(config(remote=server.url, token="open-sesame")) == "4.0.5"

        assert server.released == server.sessions
        assert "ExecutePlan" not in server.calls


def test_a_check_tells_a_wrong_token_and_a_server_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_CHECK_SECONDS", 0.1)
    with Server(token="open-sesame") as server, pytest.raises(SparkFailed, match=r"Correct spark\.token"):
        places.server_version(config(remote=server.url, token="guess"))

    with pytest.raises(SparkFailed, match="did not answer") as unreachable:
        places.server_version(config(remote=server.url))

    assert unreachable.value.failure.type == "transient_error"
