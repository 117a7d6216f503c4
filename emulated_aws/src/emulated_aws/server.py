"""An AWS account in a process of its own: moto's server, reached over HTTP by every process of a test or a demo."""

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

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
            [sys.executable, "-m", "emulated_aws.server"],
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


def layers() -> "Sequence[Callable[[WSGIApplication], WSGIApplication]]":
    """What a request passes on its way to moto, the outermost first. A layer may answer in moto's place."""
    from emulated_aws.gate import Gate

    return (partial(Gate, account=ACCOUNT_ID, administrator_key=ACCESS_KEY_ID),)


def application() -> "WSGIApplication":
    """Return AWS: moto, changed by the extension, behind the layers."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    from emulated_aws.extension import install

    install()
    dispatcher = DomainDispatcherApplication(create_backend_app)
    # It lists moto's folder of some 180 services for each request, which took a fifth of the server's time.
    dispatcher.get_backend_for_host = cache(dispatcher.get_backend_for_host)  # type: ignore[method-assign]
    behind: WSGIApplication = dispatcher
    for layer in reversed(layers()):
        behind = layer(behind)
    return behind


def _serve() -> None:
    """Serve on a free port of the loopback interface, say where on stdout, stop at the end of stdin."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        """Writes no log. It must not buffer either: clients wait a second for an answer of 100 Continue."""

        def log_request(self, *_: object) -> None:
            """Write no line that nobody reads."""

    server = make_server("127.0.0.1", 0, application(), threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.port}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    _serve()
