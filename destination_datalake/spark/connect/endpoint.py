"""The Spark Connect server that the options name: `spark.remote`. It imports nothing of gRPC's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from destination_datalake.config.groups.spark import SparkOptions


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server's address, `sc://host:port/;name=value`, and the bearer token that it asks for.

    https://github.com/apache/spark/blob/master/sql/connect/docs/client-connection-string.md
    """

    url: str
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, options: SparkOptions) -> Self:
        """Return the server at `spark.remote`."""
        if options.remote is None:
            raise AssertionError("no Spark Connect server is configured")
        return cls(options.remote, options.token.get_secret_value() if options.token else None)

    @property
    def name(self) -> str:
        """What messages call the server: its address without parameters, which may hold secrets."""
        return f"the Spark Connect server {self.url.partition(';')[0].rstrip('/')}"
