"""What the sessions of AWS's services have in common: an address on port 443, and a token that expires."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from destination_datalake.aws.errors import explain
from destination_datalake.aws.secrets import register_secrets
from destination_datalake.spark.failure import SparkFailed
from destination_datalake.spark.launchers.launcher import Endpoint

if TYPE_CHECKING:
    from botocore.exceptions import ClientError

_logger = logging.getLogger(__name__)

IDLE_MINUTES = 20
"""How long a session may be idle before AWS ends it, as after a connector that was killed. Batches come more often."""

LAUNCH_SECONDS = 900.0
"""How long a session may take to be ready: an application that is stopped is started first."""

POLL_SECONDS = 3.0

_TOKEN_HEADER = "x-aws-proxy-auth"
_EARLY = timedelta(minutes=5)
"""A token is renewed this long before it expires; it lasts an hour."""


@dataclass(frozen=True, slots=True)
class Access:
    """What GetSessionEndpoint answers: the address, a token, and when the token expires."""

    address: str
    token: str
    expires: datetime


def endpoint(get: Callable[[], Access]) -> Endpoint:
    """Return the endpoint whose access `get` asks AWS for. The address has no port and no parameters.

    https://docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/spark-connect.html,
    https://docs.aws.amazon.com/glue/latest/dg/interactive-sessions-spark-connect-connecting.html
    """
    tokens = _Tokens(get)
    host = urlsplit(tokens.access().address).netloc
    port = "" if ":" in host else ":443"
    return Endpoint(f"sc://{host}{port}/;use_ssl=true", headers=tokens.headers)


def failed(error: Exception, doing: str, resource: str) -> SparkFailed:
    """Return that AWS has refused a call, with the permission that is missing if it is that."""
    failure = explain(error, doing=doing, resource=resource)
    if failure is None:
        return SparkFailed(f"Cannot {doing} {resource}: {error}")
    return SparkFailed(failure.message, failure.type)


def is_gone(error: ClientError) -> bool:
    """Return whether AWS says that a session does not exist, or is in no state to be asked for its endpoint."""
    return error.response.get("Error", {}).get("Code") in (
        "EntityNotFoundException",
        "IllegalSessionStateException",
        "ResourceNotFoundException",
        "ValidationException",
    )


class _Tokens:
    """The token of a session, renewed before it expires."""

    def __init__(self, get: Callable[[], Access], clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._get = get
        self._clock = clock
        self._lock = threading.Lock()
        self._access: Access | None = None

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the header that AWS's proxy asks for."""
        return ((_TOKEN_HEADER, self.access().token),)

    def access(self) -> Access:
        """Return access that has not expired. Raises SessionEnded, or SparkFailed if there is none."""
        with self._lock:
            now = self._clock()
            if self._access is None or self._access.expires - now < _EARLY:
                try:
                    self._access = self._get()
                except SparkFailed as error:
                    if self._access is None or self._access.expires <= now:
                        raise
                    _logger.warning("The token of Spark's session was not renewed yet: %s", error)
                register_secrets(self._access.token)
            return self._access


def wait(ready: Callable[[], bool], stopping: threading.Event, what: str, seconds: float = LAUNCH_SECONDS) -> None:
    """Return once the session is ready, asked every 3 s. Raises SparkFailed, also when `stopping` is set."""
    for _ in range(int(seconds / POLL_SECONDS)):
        if ready():
            return
        if stopping.wait(POLL_SECONDS):
            raise SparkFailed("Spark was stopped.")
    raise SparkFailed(f"{what} was not ready within {seconds / 60:.0f} minutes.")
