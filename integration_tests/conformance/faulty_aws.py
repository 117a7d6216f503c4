"""An AWS that has bad moments: a proxy in front of the emulated account which refuses the requests it is told to."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Request:
    """What a client asks: the method, the path with its query, and the Glue operation if it is one."""

    method: str
    path: str
    operation: str


@dataclass(frozen=True)
class Fault:
    """The answer to the first `times` requests that `meets` accepts."""

    meets: Callable[[Request], bool]
    status: int
    body: bytes
    times: int


def throttled_glue(operation: str, times: int) -> Fault:
    """Glue is asked too often, says AWS (Glue API: ThrottlingException)."""
    body = b'{"__type":"ThrottlingException","message":"Rate exceeded"}'
    return Fault(lambda request: request.operation == operation, 400, body, times)


def slow_down(method: str, times: int) -> Fault:
    """S3 is asked too often, says AWS (S3 API: error code SlowDown)."""
    body = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
    return Fault(lambda request: request.method == method and not request.operation, 503, body, times)


def denied_uploads() -> Fault:
    """S3 lets nobody write (S3 API: error code AccessDenied)."""
    body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"

    def is_upload(request: Request) -> bool:
        return not request.operation and request.method in ("PUT", "POST")

    return Fault(is_upload, 403, body, 1_000_000)


class FaultyAws:
    """Starts on entering; `endpoint_url` is for the connector. `refused` counts what was not passed on."""

    endpoint_url: str

    def __init__(self, endpoint_url: str, fault: Fault) -> None:
        self._behind = urlsplit(endpoint_url).netloc
        self._fault = fault
        self._lock = threading.Lock()
        self.refused = 0

    def __enter__(self) -> Self:
        proxy = self

        class Handler(_Handler):
            def forward(self, request: Request, body: bytes, headers: Mapping[str, str]) -> tuple[int, Any, bytes]:
                return proxy._answer(request, body, headers)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint_url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, request: Request, body: bytes, headers: Mapping[str, str]) -> tuple[int, Any, bytes]:
        with self._lock:
            refuse = self._fault.meets(request) and self.refused < self._fault.times
            self.refused += refuse
        if refuse:
            return self._fault.status, {}, self._fault.body
        connection = HTTPConnection(self._behind, timeout=60)
        try:
            connection.request(request.method, request.path, body, dict(headers))
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def forward(self, request: Request, body: bytes, headers: Mapping[str, str]) -> tuple[int, Any, bytes]:
        raise NotImplementedError

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def _pass(self) -> None:
        body = self._body()
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("expect", "transfer-encoding")}
        status, answer, content = self.forward(Request(self.command, self.path, operation), body, headers)
        self.send_response_only(status)
        for name, value in answer.items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        # The answer to HEAD tells the length of a body that it does not have.
        length = answer.get("Content-Length") if self.command == "HEAD" else str(len(content))
        if length is not None and status != 204:
            self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Say nothing: a test's output is for what fails."""
