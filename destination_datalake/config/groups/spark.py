"""Options of Spark: where it runs, and what executors on other machines are given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr

from destination_datalake.config.base import Options
from destination_datalake.config.messages import Expects

ExecutorCredentials = Literal["role", "session", "keys"]


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
    python: Annotated[
        str, Field(pattern=r"^(same|pack|/\S+)$"), Expects("same, pack, or the path of Python on the executors")
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
        return self.remote is not None

    @property
    def sends_in_clear(self) -> bool:
        """Whether tasks go to other machines without encryption, unless Spark is told otherwise elsewhere.

        AES and SASL encrypt only what is authenticated. A token makes PySpark use TLS, but to localhost.
        https://spark.apache.org/docs/latest/security.html#network-encryption
        """
        if self.remote is not None:
            return self.token is None and "use_ssl=true" not in self.remote.lower()
        if self.is_local or self.is_connect:
            return False
        on = {name for name, value in self.conf.items() if value.lower() == "true"}
        encrypts = _AUTHENTICATES in on and not on.isdisjoint(_ENCRYPTS_IF_AUTHENTICATED)
        return _ENCRYPTS_ALONE not in on and not encrypts

    @property
    def warning_of_clear_text(self) -> str | None:
        """What to warn of, if credentials go to executors and others on the way can read them."""
        if not self.sends_in_clear or self.executor_credentials == "role":
            return None
        what = "the access key" if self.executor_credentials == "keys" else "credentials of a session"
        encrypt = (
            "use_ssl=true in spark.remote"
            if self.is_connect
            else "spark.authenticate and spark.network.crypto.enabled to true in spark.conf"
        )
        return (
            f"Spark sends {what} to its executors in clear text. Set {encrypt}, or give executors a role of their own "
            "and set spark.executor_credentials to role."
        )


_ENCRYPTS_ALONE = "spark.ssl.rpc.enabled"
_AUTHENTICATES = "spark.authenticate"
_ENCRYPTS_IF_AUTHENTICATED = ("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption")

_TOKEN_IN_ADDRESS = re.compile(r";token=", re.IGNORECASE)

_PLACES = ("master", "remote")


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
