"""What tests in other processes read of the account and do to it, under `/_account/`."""

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
    """The next `times` requests for an operation are too many."""

    service: str
    operation: str
    times: int


class Controls:
    """The server's side: one request for one change."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._sessions = Sessions()
        self._sessions.install()
        self._throttles: list[Throttle] = []
        self._lock = threading.Lock()

    def throttles(self, request: AwsRequest) -> bool:
        """Tell whether a request is one too many, and count it."""
        if not self._throttles:
            return False
        with self._lock:
            for throttle in self._throttles:
                if (throttle.service, throttle.operation) == (request.service, request.operation) and throttle.times:
                    throttle.times -= 1
                    return True
        return False

    def answer(self, environ: dict[str, Any], start_response: "StartResponse") -> Iterable[bytes]:
        """Answer a test's request."""
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
    """Let the credentials of sessions that begin from now on be refused after some seconds, whatever was asked for.

    AWS says so when it issues them, unless other seconds are announced.
    """
    announced = seconds if announced_seconds is None else announced_seconds
    _put(f"{endpoint_url}{_SESSIONS}", Lifetime(seconds, announced))
    try:
        yield
    finally:
        _put(f"{endpoint_url}{_SESSIONS}", None)


def end_sessions(endpoint_url: str, access_key_ids: Collection[str]) -> None:
    """Let the credentials of these sessions of roles be refused from now on, as if their time were over."""
    _put(f"{endpoint_url}{_ENDED}", [*access_key_ids])


@contextmanager
def throttling(endpoint_url: str, service: str, operation: str, times: int) -> Iterator[None]:
    """Let the next requests for an operation be too many, and boto3 ask again."""
    _put(f"{endpoint_url}{_THROTTLES}", [Throttle(service, operation, times)])
    try:
        yield
    finally:
        _put(f"{endpoint_url}{_THROTTLES}", [])


def _put(url: str, value: object) -> None:
    request = urllib.request.Request(url, msgspec.json.encode(value), {"Content-Type": "application/json"})
    urllib.request.urlopen(request).close()
