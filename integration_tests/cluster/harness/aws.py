"""The account, seen by executors through a proxy that knows their uploads and interferes with chosen ones."""

import re
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import psutil

from integration_tests.harness.aws_proxy import AwsProxy
from integration_tests.harness.loopback import Answer, Request

_DATA_FILE = re.compile(r"/orders/.*\.(parquet|jsonl|jsonl\.gz)(\?|$)")


def uploads_data(request: Request) -> bool:
    """Whether an executor uploads a data file of `orders`, or a part of one. The driver completes uploads, by POST."""
    return not request.operation and request.method == "PUT" and bool(_DATA_FILE.search(request.path))


class Interfering(AwsProxy):
    """The account, which calls `deed` when the first data file is about to be uploaded, and then passes that on."""

    def __init__(self, endpoint_url: str, deed: Callable[[Request], None]) -> None:
        super().__init__(endpoint_url)
        self._deed = deed
        self._lock = threading.Lock()
        self.done = False

    def answer(self, request: Request) -> Answer:
        with self._lock:
            if not self.done and uploads_data(request):
                self.done = True
                self._deed(request)
        return self.pass_on(request)


class Holding(AwsProxy):
    """The account, which keeps the first upload of a data file back until `released`.

    `came` is set when it has come, `arrived` when S3 has it after all.
    `freeze` is called with its sender's port.
    """

    def __init__(self, endpoint_url: str, freeze: Callable[[int], None] = lambda _: None) -> None:
        super().__init__(endpoint_url)
        self._freeze = freeze
        self._lock = threading.Lock()
        self.came = threading.Event()
        self.released = threading.Event()
        self.arrived = threading.Event()

    def answer(self, request: Request) -> Answer:
        with self._lock:
            is_first = not self.came.is_set() and uploads_data(request)
            if is_first:
                self._freeze(request.port)
                self.came.set()
        if not is_first:
            return self.pass_on(request)
        self.released.wait(120)
        answer = self.pass_on(request)
        self.arrived.set()
        return answer


def executor_at(port: int, executors: Sequence[psutil.Process]) -> psutil.Process | None:
    """Return the executor (a JVM) of whose processes one has its end of a connection at this port."""
    for executor in executors:
        with suppress(psutil.NoSuchProcess):
            for process in (executor, *executor.children(recursive=True)):
                with suppress(psutil.Error):
                    if any(connection.laddr.port == port for connection in process.net_connections()):
                        return executor
    return None


def send_to_all(executor: psutil.Process, sent: signal.Signals) -> list[psutil.Process]:
    """Send a signal to an executor's JVM and to its Python workers; return these."""
    processes = [executor, *executor.children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(sent)
    return processes
