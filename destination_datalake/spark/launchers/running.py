"""A Spark Connect server that somebody else runs: `spark.remote`."""

from __future__ import annotations

import threading

from destination_datalake.spark.launchers.launcher import Endpoint


class RunningServer:
    """The server at an address, and the token that it asks for."""

    is_fresh = False

    def __init__(self, url: str, token: str | None) -> None:
        self._endpoint = Endpoint(url, token)

    @property
    def name(self) -> str:
        """The address, without parameters: they may hold secrets."""
        return f"the Spark Connect server {self._endpoint.url.partition(';')[0].rstrip('/')}"

    def launch(self, stopping: threading.Event) -> Endpoint:  # noqa: ARG002
        """Return the address: whether the server answers is seen at the first call."""
        return self._endpoint

    def end(self) -> None:
        """Leave the server to its owner."""
