"""Proxies in front of the emulated AWS that make chosen requests fail, or kill the process that sends them."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import psutil

from integration_tests.harness.aws_proxy import AwsProxy
from integration_tests.harness.loopback import Answer, Request


@dataclass(frozen=True)
class Fault:
    """An error response. The first `times` requests for which `meets` returns True get this response."""

    meets: Callable[[Request], bool]
    status: int
    body: bytes
    times: int


def throttled_glue(operation: str, times: int) -> Fault:
    """Return a fault in which Glue throttles an operation (Glue API: ThrottlingException)."""
    body = b'{"__type":"ThrottlingException","message":"Rate exceeded"}'
    return Fault(lambda request: request.operation == operation, 400, body, times)


def slow_down(method: str, times: int) -> Fault:
    """Return a fault in which S3 throttles requests with an HTTP method (S3 API: error code SlowDown)."""
    body = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
    return Fault(lambda request: request.method == method and not request.operation, 503, body, times)


def denied_uploads() -> Fault:
    """Return a fault in which S3 denies all writes (S3 API: error code AccessDenied)."""
    body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"

    def is_upload(request: Request) -> bool:
        return not request.operation and request.method in ("PUT", "POST")

    return Fault(is_upload, 403, body, 1_000_000)


def denied_under(folder: str) -> Fault:
    """Return a fault in which S3 denies writes and deletes in a folder (S3 API: error code AccessDenied)."""
    body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"

    def is_there(request: Request) -> bool:
        return request.method in ("PUT", "POST", "DELETE") and f"/{folder}/" in request.path

    return Fault(is_there, 403, body, 1_000_000)


def denied_deletes() -> Fault:
    """Return a fault in which S3 denies deletes, but not aborts of uploads (S3 API: error code AccessDenied)."""
    body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"

    def is_delete(request: Request) -> bool:
        return request.method == "DELETE" and "uploadId=" not in request.path

    return Fault(is_delete, 403, body, 1_000_000)


def denied_parts(folder: str) -> Fault:
    """Return a fault in which S3 denies uploads of parts, and aborts of uploads, in a folder.

    S3 API: error code AccessDenied.
    """
    body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"

    def is_part(request: Request) -> bool:
        return request.method in ("PUT", "DELETE") and f"/{folder}/" in request.path and "uploadId=" in request.path

    return Fault(is_part, 403, body, 1_000_000)


def denied_glue(operation: str) -> Fault:
    """Return a fault in which Glue denies an operation (Glue API: AccessDeniedException)."""
    body = b'{"__type":"AccessDeniedException","message":"not authorized"}'
    return Fault(lambda request: request.operation == operation, 400, body, 1_000_000)


class FaultyAws(AwsProxy):
    """A proxy that answers some requests with a fault. `refused` is the number of requests that got the fault."""

    def __init__(self, endpoint_url: str, fault: Fault) -> None:
        super().__init__(endpoint_url)
        self._fault = fault
        self._lock = threading.Lock()
        self.refused = 0

    def answer(self, request: Request) -> Answer:
        with self._lock:
            refuse = self._fault.meets(request) and self.refused < self._fault.times
            self.refused += refuse
        return Answer(self._fault.status, {}, self._fault.body) if refuse else self.pass_on(request)


class MurderousAws(AwsProxy):
    """A proxy that kills Spark's Python worker when it writes a data file in `folder`, at most `times` times.

    `killed` is the number of killed workers.
    """

    def __init__(self, endpoint_url: str, folder: str, times: int) -> None:
        super().__init__(endpoint_url)
        self._folder = folder
        self._times = times
        self._lock = threading.Lock()
        self.killed = 0

    def answer(self, request: Request) -> Answer:
        if request.method in ("PUT", "POST") and f"/{self._folder}/" in request.path:
            with self._lock:
                worker = _worker_at(request.port)
                if worker is not None and self.killed < self._times:
                    self.killed += 1
                    with suppress(psutil.NoSuchProcess):
                        worker.kill()
                        worker.wait()
        return self.pass_on(request)


def _worker_at(port: int) -> psutil.Process | None:
    """Return the Python worker of Spark that uses a local port, or None if another process uses it."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if any(argument.endswith("runs.worker_daemon") for argument in process.cmdline()) and any(
                connection.laddr.port == port for connection in process.net_connections()
            ):
                return process
    return None
