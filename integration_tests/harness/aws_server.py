"""An AWS account in a process of its own: moto's server, reached over HTTP by every process of a test or a demo."""

import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

ACCOUNT_ID = "123456789012"
REGION = "us-east-1"
ACCESS_KEY_ID = "AKIAIOSFODNN7EXAMPLE"
SECRET_ACCESS_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"


class AwsServer:
    """Start on entering, stop on leaving; `endpoint_url` is the one URL of all services.

    The server stops by itself when the process that started it is gone: it waits on its stdin.
    """

    endpoint_url: str

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            # -P: the folder of this file is not a place to import from.
            [sys.executable, "-P", str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # A Ctrl-C in a terminal goes to the whole process group; the server outlives it until it is stopped.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self.endpoint_url = self._process.stdout.readline().decode().strip()
        if not self.endpoint_url:
            self.__exit__(None, None, None)
            raise RuntimeError("The embedded AWS server did not start: is moto[server] installed?")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()


def compare_versions() -> None:
    """Let moto's UpdateTable refuse a VersionId that is not the table's any more, as Glue does."""
    from moto.core.exceptions import JsonRESTError
    from moto.core.responses import ActionResult
    from moto.glue.responses import GlueResponse

    unconditional = GlueResponse.update_table
    lock = threading.Lock()

    def update_table(request: GlueResponse) -> ActionResult:
        asked, database = request.parameters.get("VersionId"), request.parameters["DatabaseName"]
        with lock:
            table = request.glue_backend.get_table(database, request.parameters["TableInput"]["Name"])
            if asked not in (None, table.as_dict()["VersionId"]):
                raise JsonRESTError("ConcurrentModificationException", f"Update table failed: version {asked} is old")
            return unconditional(request)

    GlueResponse.update_table = update_table  # type: ignore[assignment,method-assign]


def _serve() -> None:
    """Serve on a free port of the loopback interface, say where on stdout, stop at the end of stdin."""
    from moto.server import ThreadedMotoServer

    compare_versions()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    sys.stdout.write(f"http://127.0.0.1:{port}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    _serve()
