"""An AWS account in a process of its own: moto's server, which all processes of a test or a demo reach over HTTP."""

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
    """The server process, as a context manager that starts and stops it. `endpoint_url` is the URL of all services.

    The server waits for the end of its standard input. It therefore also stops when the process that started it ends.
    """

    endpoint_url: str

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "emulated_aws.server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # A terminal sends Ctrl-C to the whole process group. In its own session, the server keeps running until the
            # context manager stops it.
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
    """Return the layers in front of moto, the outermost first. A layer may answer a request instead of moto."""
    from emulated_aws.gate import Gate

    return (partial(Gate, account=ACCOUNT_ID, administrator_key=ACCESS_KEY_ID),)


def application() -> "WSGIApplication":
    """Return the emulated AWS: moto with the corrections of `emulated_aws.extension`, behind the layers."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    from emulated_aws.extension import install

    install()
    dispatcher = DomainDispatcherApplication(create_backend_app)
    # Without the cache, moto lists its folder of some 180 services for each request, which took a fifth of the server's
    # time.
    dispatcher.get_backend_for_host = cache(dispatcher.get_backend_for_host)  # type: ignore[method-assign]
    behind: WSGIApplication = dispatcher
    for layer in reversed(layers()):
        behind = layer(behind)
    return behind


def _serve() -> None:
    """Serve on a free port of the loopback interface, and print the URL to stdout. Stop at the end of stdin."""
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    class Handler(MotoRequestHandler):
        """A handler without a log. It must not buffer responses, because clients wait a second for 100 Continue."""

        def log_request(self, *_: object) -> None:
            """Do nothing, because nobody reads this log."""

    server = make_server("127.0.0.1", 0, application(), threaded=True, request_handler=Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"http://127.0.0.1:{server.port}\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    _serve()
