"""Options of Spark: where it runs, its properties, and the credentials of remote executors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SecretStr

from destination_datalake.config.base import AnyCase, Entries, Options

ExecutorCredentials = Literal["role", "session"]


class Setting(Options):
    """A property of Spark."""

    name: Annotated[str, Field(min_length=1)]
    value: str


class SparkOptions(Options):
    """Where Spark runs, and its properties. Subclasses narrow the types of `master` and `remote`."""

    master: str = "local[*]"
    remote: str | None = None
    token: SecretStr | None = None
    python: Annotated[str, Field(pattern=r"^(same|pack|/\S.*)$"), AnyCase()] = "same"
    executor_credentials: ExecutorCredentials = "role"
    conf: Annotated[dict[str, str], Entries(Setting)] = Field(default_factory=dict)

    @property
    def is_local(self) -> bool:
        """Whether Spark runs only on this machine: executors then share its disk and its AWS identity."""
        return self.master.startswith("local") and not self.is_connect

    @property
    def is_connect(self) -> bool:
        """Whether the connector uses Spark Connect: the driver then runs on another machine."""
        return self.remote is not None

    @property
    def is_authenticated(self) -> bool:
        """Whether Spark's processes authenticate with a shared secret.

        This is the default except on a standalone cluster, where the secret must be configured:
        https://spark.apache.org/docs/latest/security.html#spark-rpc-communication-protocol-between-spark-processes
        """
        return self.conf.get(_AUTHENTICATES, str(not self.master.startswith("spark://"))).lower() == "true"

    @property
    def is_unencrypted(self) -> bool:
        """Whether tasks are sent to other machines without encryption, according to the connector's options.

        AES and SASL encrypt only authenticated connections. With a token, PySpark uses TLS, except to localhost.
        https://spark.apache.org/docs/latest/security.html#network-encryption
        """
        if self.remote is not None:
            uses_tls = self.token is not None and not _TO_LOCALHOST.match(self.remote)
            return not uses_tls and "use_ssl=true" not in self.remote.lower()
        if self.is_local:
            return False
        on = {name for name, value in self.conf.items() if value.lower() == "true"}
        encrypts = self.is_authenticated and not on.isdisjoint(_ENCRYPTS_IF_AUTHENTICATED)
        return _ENCRYPTS_ALONE not in on and not encrypts

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about connections of Spark without encryption or authentication."""
        warnings = []
        if self.is_connect and self.is_unencrypted:
            warnings.append(
                "The connection to spark.remote does not use TLS, so an attacker on the network can change the data. "
                f"Set use_ssl=true in spark.remote.{_SEE}"
            )
        elif not self.is_connect and not self.is_authenticated:
            warnings.append(
                "Spark does not authenticate connections. Anyone with access to the ports of its driver or executors "
                "can run code in the connector and read its credentials. Set spark.authenticate and "
                f"spark.network.crypto.enabled to true in spark.conf.{_SEE}"
            )
        if self.is_unencrypted and self.executor_credentials != "role":
            encrypt = (
                "use_ssl=true in spark.remote"
                if self.is_connect
                else "spark.authenticate and spark.network.crypto.enabled to true in spark.conf"
            )
            warnings.append(
                "Spark sends session credentials to its executors in clear text. "
                f"Set {encrypt}, or give the executors their own role and set spark.executor_credentials to role."
            )
        return tuple(warnings)


_SEE = " See docs/operating/security.md."
_TO_LOCALHOST = re.compile(r"sc://localhost(?:[:/;]|$)", re.IGNORECASE)


class LocalSpark(SparkOptions, title="On this machine"):
    """Spark in the connector's container. It is included in the image and needs no setup."""

    fields_in_form: ClassVar = ("mode", "master", "conf")

    mode: Literal["local"] = "local"
    master: Annotated[str, Field(pattern=r"^local(\[[0-9*]+(, *[0-9]+)?\]|-cluster\[[0-9, ]+\])?$"), AnyCase()] = (
        "local[*]"
    )


class ClusterSpark(SparkOptions, title="On a cluster"):
    """Executors on other machines, and the driver in the connector's container."""

    fields_in_form: ClassVar = ("mode", "master", "python", "executor_credentials", "conf")

    mode: Literal["cluster"]
    master: Annotated[str, Field(pattern=r"^(spark://\S+|k8s://\S+|yarn)$")]


class ConnectSpark(SparkOptions, title="Behind Spark Connect"):
    """Driver and executors on other machines, behind a Spark Connect server."""

    fields_in_form: ClassVar = ("mode", "remote", "token", "python", "executor_credentials", "conf")

    mode: Literal["connect"]
    remote: Annotated[str, Field(pattern=r"^sc://[^\s/;]+(/\S*)?$")]


Spark = LocalSpark | ClusterSpark | ConnectSpark


def inferred_mode(spark: Mapping[str, Any]) -> str:
    """Return the `mode` of options without one, from before that option existed."""
    if spark.get("remote") is not None:
        return "connect"
    return "local" if str(spark.get("master", "local")).lower().startswith("local") else "cluster"


_ENCRYPTS_ALONE = "spark.ssl.rpc.enabled"
_AUTHENTICATES = "spark.authenticate"
_ENCRYPTS_IF_AUTHENTICATED = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")

_TOKEN_IN_ADDRESS = re.compile(r";token=", re.IGNORECASE)


def contradictory_spark(spark: Spark) -> Iterator[str]:
    """Yield a message for each pair of contradictory options."""
    if {"master", "remote"} <= spark.model_fields_set:
        yield "spark.master and spark.remote are alternatives. Keep one of them."
    elif spark.remote is not None and not isinstance(spark, ConnectSpark):
        yield (
            f"spark.remote requires spark.mode connect, but spark.mode is {spark.mode}. Set spark.mode to connect, or "
            "remove spark.remote."
        )
    if spark.remote is not None and _TOKEN_IN_ADDRESS.search(spark.remote):
        yield "spark.remote contains a token, which is not kept secret there. Move it to spark.token."
    if spark.token is not None and spark.remote is None:
        yield "spark.token requires spark.remote, which is not set. Set spark.remote, or remove spark.token."
    for name in ("spark.pyspark.python", "spark.pyspark.driver.python"):
        if name in spark.conf:
            yield f"{name} has no effect in spark.conf. Set spark.python instead."
    for name in ("spark.master", "spark.remote"):
        if name in spark.conf:
            yield f"{name} is not allowed in spark.conf. Set the option {name} instead."
