"""Options of Spark: where it runs, what contradicts what, and whether what is sent there can be read on the way."""

from __future__ import annotations

from typing import Any

import pytest

from destination_datalake.config.options import Config
from unit_tests.config.examples import options, refusal


@pytest.mark.parametrize(
    ("spark", "is_local", "is_connect"),
    [
        ({}, True, False),
        ({"master": "local[2]"}, True, False),
        ({"master": "spark://lake:7077"}, False, False),
        ({"remote": "sc://lake:15002"}, False, True),
        ({"remote": "sc://lake:443/;use_ssl=true", "token": "t0k3n"}, False, True),
    ],
)
def test_a_master_or_one_other_place_says_where_spark_runs(
    spark: dict[str, Any], is_local: bool, is_connect: bool
) -> None:
    given = Config.parse(options(spark=spark)).spark

    assert (given.is_local, given.is_connect) == (is_local, is_connect)


@pytest.mark.parametrize(
    ("without", "mode"),
    [
        ({}, "local"),
        ({"master": "LOCAL[2]"}, "local"),
        ({"conf": {"spark.ui.enabled": "false"}}, "local"),
        ({"python": "pack", "executor_credentials": "session"}, "local"),
        ({"master": "k8s://lake", "python": "pack"}, "cluster"),
        ({"remote": "sc://lake", "token": "t0k3n", "executor_credentials": "session"}, "connect"),
    ],
)
def test_options_of_before_there_was_a_mode_mean_the_same_with_it(without: dict[str, Any], mode: str) -> None:
    config = Config.parse(options(spark=without))

    assert config == Config.parse(options(spark={"mode": mode, **without}))
    assert config.spark.mode == mode
    assert config.unknown_options() == ()


@pytest.mark.parametrize(
    ("spark", "words"),
    [
        ({"mode": "here"}, "spark is not valid. It must be an object whose mode is local, cluster or connect."),
        ({"mode": "local", "master": "yarn"}, "spark.master is not valid. It must be local[*], or local[4]"),
        ({"mode": "cluster"}, "spark.master is missing. It must be spark://host:7077, k8s://… or yarn; for Spark"),
        ({"mode": "connect"}, "spark.remote is missing. It must be the address of a Spark Connect server"),
        ({"mode": "cluster", "master": "yarn", "token": "t0k3n"}, "spark.token requires spark.remote"),
        (
            {"mode": "local", "remote": "sc://lake"},
            "spark.remote requires spark.mode connect",
        ),
        ({"master": "local[2]", "remote": "sc://lake"}, "spark.master and spark.remote exclude each other"),
        ({"token": "t0k3n"}, "spark.token requires spark.remote, but spark.remote is not set"),
        ({"remote": "sc://lake/;use_ssl=true;token=t0k3n"}, "spark.remote contains a token"),
        ({"conf": {"spark.master": "yarn"}}, "spark.master is not allowed in spark.conf"),
        ({"conf": {"spark.remote": "sc://lake"}}, "spark.remote is not allowed in spark.conf"),
        ({"conf": {"spark.pyspark.python": "/p"}}, "spark.pyspark.python has no effect in spark.conf"),
        ({"remote": "http://lake"}, "spark.remote is not valid. It must be the address of a Spark Connect server"),
        ({"python": "python3"}, "spark.python is not valid. It must be same, pack, or the path"),
        ({"executor_credentials": "mine"}, "spark.executor_credentials is not valid. It must be role or session"),
    ],
)
def test_contradictions_and_invalid_values_are_refused(spark: dict[str, Any], words: str) -> None:
    message = refusal(options(spark=spark))

    assert words in message
    assert "t0k3n" not in message


@pytest.mark.parametrize(
    ("master", "conf", "in_clear"),
    [
        ("local[*]", {}, False),
        ("spark://lake:7077", {}, True),
        ("k8s://lake", {"spark.network.crypto.enabled": "false"}, True),
        ("yarn", {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}, False),
        ("yarn", {"spark.authenticate": "TRUE", "spark.authenticate.enableSaslEncryption": "True"}, False),
        ("yarn", {"spark.network.crypto.enabled": "true"}, False),
        ("yarn", {"spark.authenticate": "false", "spark.network.crypto.enabled": "true"}, True),
        ("spark://lake:7077", {"spark.network.crypto.enabled": "true"}, True),
        ("yarn", {"spark.authenticate": "true"}, True),
        ("spark://lake:7077", {"spark.ssl.rpc.enabled": "true"}, False),
    ],
)
def test_tasks_cross_a_network_in_clear_text_unless_spark_encrypts(
    master: str, conf: dict[str, str], in_clear: bool
) -> None:
    assert Config.parse(options(spark={"master": master, "conf": conf})).spark.is_unencrypted is in_clear


@pytest.mark.parametrize(("remote", "in_clear"), [("sc://lake:15002", True), ("sc://lake/;use_ssl=true", False)])
def test_a_connect_server_is_spoken_to_in_clear_text_unless_by_tls(remote: str, in_clear: bool) -> None:
    assert Config.parse(options(spark={"remote": remote})).spark.is_unencrypted is in_clear


def test_a_token_is_sent_by_tls_alone() -> None:
    assert not Config.parse(options(spark={"remote": "sc://lake", "token": "t0k3n"})).spark.is_unencrypted
    assert Config.parse(options(spark={"remote": "sc://localhost:15002", "token": "t0k3n"})).spark.is_unencrypted


CLASSIC = {"master": "spark://lake:7077"}
NOBODY = "Spark does not authenticate connections"
NO_TLS = "The connection to spark.remote does not use TLS"
ENCRYPTED = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@pytest.mark.parametrize(
    ("spark", "words"),
    [
        (CLASSIC, [NOBODY]),
        ({**CLASSIC, "conf": {"spark.network.crypto.enabled": "true"}}, [NOBODY]),
        ({**CLASSIC, "conf": {"spark.authenticate": "True"}}, []),
        ({"master": "local-cluster[1,1,1024]"}, []),
        ({"master": "yarn"}, []),
        ({"master": "k8s://lake", "conf": {"spark.authenticate": "false"}}, [NOBODY]),
        ({}, []),
        ({"conf": {"spark.authenticate": "false"}}, [NOBODY]),
        (
            {**CLASSIC, "executor_credentials": "session"},
            [NOBODY, "session credentials to its executors in clear text. Set spark"],
        ),
        ({**CLASSIC, "executor_credentials": "session", "conf": ENCRYPTED}, []),
        ({"remote": "sc://lake"}, [NO_TLS]),
        ({"remote": "sc://localhost"}, [NO_TLS]),
        ({"remote": "sc://localhost", "token": "t0k3n"}, [NO_TLS]),
        ({"remote": "sc://lake", "token": "t0k3n"}, []),
        (
            {"remote": "sc://lake", "executor_credentials": "session"},
            [NO_TLS, "clear text. Set use_ssl=true in spark.remote"],
        ),
        ({"remote": "sc://lake/;use_ssl=true", "executor_credentials": "session"}, []),
        ({"executor_credentials": "session"}, []),
    ],
)
def test_what_others_on_the_network_can_do_is_warned_of(spark: dict[str, Any], words: list[str]) -> None:
    warnings = Config.parse(options(spark=spark)).spark.warnings

    assert len(warnings) == len(words)
    assert [word for word, warning in zip(words, warnings, strict=True) if word not in warning] == []
