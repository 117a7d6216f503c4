"""An HTTP server on the loopback interface, in the process of the test: the base of AWS proxies and of catalogs."""

import socket
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Request:
    """A request of a client: method, path with query, Glue operation (empty for other requests), headers and body.

    `port` is the port at the client's end of the connection.
    """

    method: str
    path: str
    operation: str
    headers: Mapping[str, str]
    body: bytes
    port: int

    def header(self, name: str) -> str:
        """Return the value of a header, or an empty string if it is missing. Names are case-insensitive."""
        return next((value for key, value in self.headers.items() if key.lower() == name.lower()), "")


@dataclass(frozen=True)
class Answer:
    """The response to a request: HTTP status, headers and body.

    If `is_cut`, the connection ends in the middle of the body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_cut: bool = False


class HungUp(ConnectionError):
    """Raised by `answer` to reset the client's connection instead of sending a response."""


class LoopbackServer(ABC):
    """An HTTP server on a free port, which runs within a `with` block. `endpoint_url` is its address.

    Subclasses implement `answer`.
    """

    endpoint_url: str

    @abstractmethod
    def answer(self, request: Request) -> Answer:
        """Return the response to a request, or raise HungUp. Called on a separate thread per connection."""

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"answers": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Disable Nagle's algorithm: headers and body are two segments, and otherwise the second would wait 40 ms for the
    # client's acknowledgement of the first.
    disable_nagle_algorithm = True
    answers: LoopbackServer

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except HungUp:
            self.close_connection = True
            # With SO_LINGER of 0 seconds, closing the socket sends RST, even if data remain (socket(7)).
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def finish(self) -> None:
        super().finish()
        self.connection.close()

    def _pass(self) -> None:
        body = self._body()
        operation = self.headers.get("X-Amz-Target", "").rpartition(".")[2]
        headers = {k: v for k, v in self.headers.items() if k.lower() not in ("expect", "transfer-encoding")}
        answer = self.answers.answer(Request(self.command, self.path, operation, headers, body, self.client_address[1]))
        self.send_response_only(answer.status)
        for name, value in answer.headers.items():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        # The response to HEAD contains the length of a body, but no body.
        head = self.command == "HEAD"
        length = answer.headers.get("Content-Length") if head else str(len(answer.body))
        if length is not None and answer.status != 204:
            self.send_header("Content-Length", length)
        self.end_headers()
        if answer.is_cut:
            self.close_connection = True
        if not head:
            self.wfile.write(answer.body[: len(answer.body) // 2] if answer.is_cut else answer.body)

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
        """Suppress the log, so that a test's output contains only failures."""
