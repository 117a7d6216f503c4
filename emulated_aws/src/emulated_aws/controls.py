"""The server's endpoints for tests in other processes, under `/_account/`: the log of requests, sessions and faults."""

import threading
import urllib.request
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec

from emulated_aws.access.sessions import Lifetime, Sessions, end
from emulated_aws.requests.log import REQUESTS, Ledger
from emulated_aws.requests.request import AwsRequest

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse

PREFIX = "/_account/"
_SESSIONS = f"{PREFIX}sessions"
_ENDED = f"{PREFIX}sessions/ended"
_THROTTLES = f"{PREFIX}throttles"


class Throttle(msgspec.Struct):
    """A fault that throttles the next `times` requests for an operation."""

    service: str
    operation: str
    times: int


class Controls:
    """The server's side of these endpoints. Each request of a test makes one change."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sessions = Sessions()
        self._sessions.install()
        self._throttles: list[Throttle] = []
        self._lock = threading.Lock()

    def throttles(self, request: AwsRequest) -> bool:
        """Return whether a fault throttles a request. If so, count the request."""
        if not self._throttles:
            return False
        with self._lock:
            for throttle in self._throttles:
                if (throttle.service, throttle.operation) == (request.service, request.operation) and throttle.times:
                    throttle.times -= 1
                    return True
        return False

    def answer(self, environ: dict[str, Any], start_response: "StartResponse") -> Iterable[bytes]:
        """Handle a test's request. Raises LookupError for an unknown path."""
        body, answer = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)), b""
        match environ["PATH_INFO"]:
            case path if path == REQUESTS:
                (since,) = parse_qs(environ["QUERY_STRING"])["since"]
                answer = str(self._ledger.last).encode() if since == "last" else self._ledger.since(int(since))
            case path if path == _SESSIONS:
                self._sessions.lifetime = msgspec.json.decode(body, type=Lifetime | None)
            case path if path == _ENDED:
                end(msgspec.json.decode(body, type=set[str]))
            case path if path == _THROTTLES:
                with self._lock:
                    self._throttles = msgspec.json.decode(body, type=list[Throttle])
            case path:
                raise LookupError(path)
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(answer)))])
        return [answer]


@contextmanager
def sessions_lasting(endpoint_url: str, seconds: float, announced_seconds: float | None = None) -> Iterator[None]:
    """Refuse the credentials of sessions that start in the `with` block after `seconds`, whatever callers request.

    If `announced_seconds` is set, the server announces this lifetime when it issues the credentials.
    """
    announced = seconds if announced_seconds is None else announced_seconds
    _put(f"{endpoint_url}{_SESSIONS}", Lifetime(seconds, announced))
    try:
        yield
    finally:
        _put(f"{endpoint_url}{_SESSIONS}", None)


def end_sessions(endpoint_url: str, access_key_ids: Collection[str]) -> None:
    """Refuse the credentials of these sessions of roles from now on, as if the sessions had expired."""
    _put(f"{endpoint_url}{_ENDED}", [*access_key_ids])


@contextmanager
def throttling(endpoint_url: str, service: str, operation: str, times: int) -> Iterator[None]:
    """Throttle the next `times` requests for an operation in the `with` block. boto3 retries such requests."""
    _put(f"{endpoint_url}{_THROTTLES}", [Throttle(service, operation, times)])
    try:
        yield
    finally:
        _put(f"{endpoint_url}{_THROTTLES}", [])


def _put(url: str, value: object) -> None:
    request = urllib.request.Request(url, msgspec.json.encode(value), {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()
