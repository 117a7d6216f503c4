"""The servers that options name, and whether they answer."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.options import Config
from destination_datalake.spark.connect import places
from destination_datalake.spark.connect.endpoint import Endpoint
from destination_datalake.spark.failure import SparkFailed
from unit_tests.config.examples import options
from unit_tests.spark.connect.server import Server


def config(**spark: Any) -> Config:
    return Config.parse(options(spark=spark))


def test_messages_name_the_server_without_its_parameters() -> None:
    spark = config(remote="sc://lake:15002/;use_ssl=true").spark

    assert Endpoint.of(spark).name == "the Spark Connect server sc://lake:15002"


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
