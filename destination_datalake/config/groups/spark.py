"""Options of Spark: where it runs, and what executors on other machines are given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr

from destination_datalake.config.base import ROLE_ARN, Options
from destination_datalake.config.messages import Expects

ExecutorCredentials = Literal["role", "session", "keys"]


class EmrServerless(Options):
    """An application of EMR Serverless, in which a session is started for each sync."""

    application_id: Annotated[str, Field(pattern=r"^[0-9a-z]{1,64}$"), Expects("the id of an application")]
    execution_role_arn: Annotated[
        str, Field(pattern=ROLE_ARN), Expects("a role's ARN, such as arn:aws:iam::123456789012:role/spark")
    ]


class GlueSession(Options):
    """An interactive session of AWS Glue, which is started for each sync."""

    role_arn: Annotated[
        str, Field(pattern=ROLE_ARN), Expects("a role's ARN, such as arn:aws:iam::123456789012:role/spark")
    ]
    worker_type: Annotated[
        str, Field(pattern=r"^[A-Z]\.[0-9]{1,2}X$"), Expects("a type of Glue's workers, such as G.1X")
    ] = "G.1X"
    number_of_workers: Annotated[int, Field(ge=2, le=299), Expects("a whole number of workers from 2 to 299")] = 2


class SparkOptions(Options):
    """Where Spark runs, and its own settings."""

    master: Annotated[
        str,
        Field(pattern=r"^(local(\[[0-9*]+(, *[0-9]+)?\])?|local-cluster\[[0-9, ]+\]|spark://\S+|k8s://\S+|yarn)$"),
        Expects("local[*], local[4], spark://host:7077, k8s://… or yarn"),
    ] = "local[*]"
    remote: Annotated[
        str | None,
        Field(pattern=r"^sc://[^\s/;]+(/\S*)?$"),
        Expects("the address of a Spark Connect server: sc://host:15002"),
    ] = None
    token: Annotated[SecretStr | None, Expects("the token that the Spark Connect server asks for")] = None
    emr_serverless: Annotated[EmrServerless | None, Expects("an object with application_id and execution_role_arn")] = (
        None
    )
    glue_session: Annotated[GlueSession | None, Expects("an object with role_arn")] = None
    python: Annotated[
        str, Field(pattern=r"^(same|pack|/\S.*)$"), Expects("same, pack, or the path of Python on the executors")
    ] = "same"
    executor_credentials: Annotated[ExecutorCredentials, Expects("role, session or keys")] = "role"
    conf: Annotated[dict[str, str], Expects("an object of Spark settings, each value a string")] = Field(
        default_factory=dict
    )

    @property
    def is_local(self) -> bool:
        """Whether Spark runs on this machine alone, so that executors share its disk and its identity."""
        return self.master.startswith("local") and not self.is_connect

    @property
    def is_connect(self) -> bool:
        """Whether Spark is reached by Spark Connect: its driver is elsewhere."""
        return not (self.remote is None and self.emr_serverless is None and self.glue_session is None)

    @property
    def sends_in_clear(self) -> bool:
        """Whether tasks go to other machines without encryption, unless Spark is told otherwise elsewhere.

        AES and SASL encrypt only what is authenticated. A token makes PySpark use TLS, but to localhost.
        https://spark.apache.org/docs/latest/security.html#network-encryption
        """
        if self.remote is not None:
            uses_tls = self.token is not None and not _TO_LOCALHOST.match(self.remote)
            return not uses_tls and "use_ssl=true" not in self.remote.lower()
        if self.is_local or self.is_connect:
            return False
        on = {name for name, value in self.conf.items() if value.lower() == "true"}
        encrypts = _AUTHENTICATES in on and not on.isdisjoint(_ENCRYPTS_IF_AUTHENTICATED)
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
        elif not self.is_local and not self.is_connect and not self._authenticates:
            told.append(
                "Spark authenticates nobody: who reaches the ports of its driver or executors can run code in the "
                "connector and read its credentials. Set spark.authenticate and spark.network.crypto.enabled to true "
                f"in spark.conf.{_SEE}"
            )
        if clear and self.executor_credentials != "role":
            what = "the access key" if self.executor_credentials == "keys" else "credentials of a session"
            encrypt = (
                "use_ssl=true in spark.remote"
                if self.is_connect
                else "spark.authenticate and spark.network.crypto.enabled to true in spark.conf"
            )
            told.append(
                f"Spark sends {what} to its executors in clear text. Set {encrypt}, or give executors a role of their "
                "own and set spark.executor_credentials to role."
            )
        return tuple(told)

    @property
    def _authenticates(self) -> bool:
        return self.conf.get(_AUTHENTICATES, "").lower() == "true"


_SEE = " docs/operating/security.md says what is trusted."
_TO_LOCALHOST = re.compile(r"sc://localhost(?:[:/;]|$)", re.IGNORECASE)

_ENCRYPTS_ALONE = "spark.ssl.rpc.enabled"
_AUTHENTICATES = "spark.authenticate"
_ENCRYPTS_IF_AUTHENTICATED = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")

_TOKEN_IN_ADDRESS = re.compile(r";token=", re.IGNORECASE)

_PLACES = ("master", "remote", "emr_serverless", "glue_session")


def contradictory_spark(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each pair of options in `spark` that contradict each other."""
    spark = given.get("spark")
    if not isinstance(spark, dict):
        return
    places = [f"spark.{name}" for name in _PLACES if spark.get(name) is not None]
    if len(places) > 1:
        yield f"{' and '.join(places)} each say where Spark runs. Keep one of them."
    if _TOKEN_IN_ADDRESS.search(str(spark.get("remote"))):
        yield "spark.remote has a token, which would not be kept secret there. Set it as spark.token instead."
    if spark.get("token") is not None and spark.get("remote") is None:
        yield "spark.token is for the server at spark.remote, which is not set. Set it, or leave the token out."
    credentials = given.get("credentials")
    title = credentials.get("credentials_title") if isinstance(credentials, dict) else None
    if spark.get("executor_credentials") == "keys" and title not in ("IAM User", None):
        yield (
            f"spark.executor_credentials is keys, but credentials_title is {title}, which has no access key. Set it to "
            "session, or to role."
        )
    conf = spark.get("conf")
    if isinstance(conf, dict):
        for name in ("spark.pyspark.python", "spark.pyspark.driver.python"):
            if name in conf:
                yield f"spark.conf has {name}, which has no effect. Set spark.python outside of conf."
        for name in ("spark.master", "spark.remote"):
            if name in conf:
                yield f"spark.conf has {name}, which is an option of its own. Set {name} outside of conf."
