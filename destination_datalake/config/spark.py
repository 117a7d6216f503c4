"""Options of Spark: where it runs, and what executors on other machines are given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SecretStr

from destination_datalake.config.base import AnyCase, Entries, Options

ExecutorCredentials = Literal["role", "session"]


class Setting(Options):
    """One of Spark's properties."""

    name: Annotated[str, Field(min_length=1)]
    value: str


class SparkOptions(Options):
    """Where Spark runs, and its own settings. `master` and `remote` are narrowed by the places that have them."""

    master: str = "local[*]"
    remote: str | None = None
    token: SecretStr | None = None
    python: Annotated[str, Field(pattern=r"^(same|pack|/\S.*)$"), AnyCase()] = "same"
    executor_credentials: ExecutorCredentials = "role"
    conf: Annotated[dict[str, str], Entries(Setting)] = Field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether Spark runs on this machine alone, so that executors share its disk and its identity."""
        return self.master.startswith("local") and not self.is_connect

    @property
    def is_connect(self) -> bool:
        """Whether Spark is reached by Spark Connect: its driver is elsewhere."""
        return self.remote is not None

    @property
    def authenticates(self) -> bool:
        """Whether processes of Spark have to know a secret: everywhere but on a standalone cluster, which has to be
        given one (https://spark.apache.org/docs/latest/security.html#spark-rpc-communication-protocol-between-spark-processes).
        """
        return self.conf.get(_AUTHENTICATES, str(not self.master.startswith("spark://"))).lower() == "true"

    @property
    def sends_in_clear(self) -> bool:
        """Whether tasks go to other machines without encryption, unless Spark is told otherwise elsewhere.

        AES and SASL encrypt only what is authenticated. A token makes PySpark use TLS, but to localhost.
        https://spark.apache.org/docs/latest/security.html#network-encryption
        """
        if self.remote is not None:
            uses_tls = self.token is not None and not _TO_LOCALHOST.match(self.remote)
            return not uses_tls and "use_ssl=true" not in self.remote.lower()
        if self.is_local:
            return False
        on = {name for name, value in self.conf.items() if value.lower() == "true"}
        encrypts = self.authenticates and not on.isdisjoint(_ENCRYPTS_IF_AUTHENTICATED)
        return _ENCRYPTS_ALONE not in on and not encrypts

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to warn of: others on the network can read what Spark sends, or take the place of its processes."""
        clear = self.sends_in_clear
        told = []
        if self.is_connect and clear:
            told.append(
                "The connection to spark.remote has no TLS: who is on the way can change the data that is written. Set "
                f"use_ssl=true in spark.remote.{_SEE}"
            )
        elif not self.is_connect and not self.authenticates:
            told.append(
                "Spark authenticates nobody: who reaches the ports of its driver or executors can run code in the "
                "connector and read its credentials. Set spark.authenticate and spark.network.crypto.enabled to true "
                f"in spark.conf.{_SEE}"
            )
        if clear and self.executor_credentials != "role":
            encrypt = (
                "use_ssl=true in spark.remote"
                if self.is_connect
                else "spark.authenticate and spark.network.crypto.enabled to true in spark.conf"
            )
            told.append(
                "Spark sends credentials of a session to its executors in clear text. "
                f"Set {encrypt}, or give executors a role of their own and set spark.executor_credentials to role."
            )
        return tuple(told)


_SEE = " docs/operating/security.md says what is trusted."
_TO_LOCALHOST = re.compile(r"sc://localhost(?:[:/;]|$)", re.IGNORECASE)


class LocalSpark(SparkOptions, title="On this machine"):
    """In the connector's container: it comes with the connector, and nothing has to be set up."""

    fields_in_form: ClassVar = ("mode", "master", "conf")

    mode: Literal["local"] = "local"
    master: Annotated[str, Field(pattern=r"^local(\[[0-9*]+(, *[0-9]+)?\]|-cluster\[[0-9, ]+\])?$"), AnyCase()] = (
        "local[*]"
    )


class ClusterSpark(SparkOptions, title="On a cluster"):
    """With executors on other machines, and its driver in the connector's container."""

    fields_in_form: ClassVar = ("mode", "master", "python", "executor_credentials", "conf")

    mode: Literal["cluster"]
    master: Annotated[str, Field(pattern=r"^(spark://\S+|k8s://\S+|yarn)$")]


class ConnectSpark(SparkOptions, title="Behind Spark Connect"):
    """With driver and executors on other machines, reached by a Spark Connect server."""

    fields_in_form: ClassVar = ("mode", "remote", "token", "python", "executor_credentials", "conf")

    mode: Literal["connect"]
    remote: Annotated[str, Field(pattern=r"^sc://[^\s/;]+(/\S*)?$")]


Spark = LocalSpark | ClusterSpark | ConnectSpark


def place_of(spark: Mapping[str, Any]) -> str:
    """Return the `mode` that options without one mean: those of before there was one."""
    if spark.get("remote") is not None:
        return "connect"
    return "local" if str(spark.get("master", "local")).lower().startswith("local") else "cluster"


_ENCRYPTS_ALONE = "spark.ssl.rpc.enabled"
_AUTHENTICATES = "spark.authenticate"
_ENCRYPTS_IF_AUTHENTICATED = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")

_TOKEN_IN_ADDRESS = re.compile(r";token=", re.IGNORECASE)


def contradictory_spark(spark: Spark) -> Iterator[str]:
    """Yield a sentence for each pair of options that contradict each other."""
    given = spark.model_fields_set
    if {"master", "remote"} <= given:
        yield "spark.master and spark.remote each say where Spark runs. Keep one of them."
    elif spark.remote is not None and not isinstance(spark, ConnectSpark):
        yield (
            f"spark.mode is {spark.mode}, and spark.remote is for connect. Set spark.mode to connect, or leave "
            "spark.remote out."
        )
    if spark.remote is not None and _TOKEN_IN_ADDRESS.search(spark.remote):
        yield "spark.remote has a token, which would not be kept secret there. Set it as spark.token instead."
    if spark.token is not None and spark.remote is None:
        yield "spark.token is for the server at spark.remote, which is not set. Set it, or leave the token out."
    for name in ("spark.pyspark.python", "spark.pyspark.driver.python"):
        if name in spark.conf:
            yield f"spark.conf has {name}, which has no effect. Set spark.python outside of conf."
    for name in ("spark.master", "spark.remote"):
        if name in spark.conf:
            yield f"spark.conf has {name}, which is an option of its own. Set {name} outside of conf."
