"""A proxy in front of the emulated account, through which a test sees and changes what the connector asks of AWS."""

from http.client import HTTPConnection
from urllib.parse import urlsplit

from integration_tests.harness.loopback import Answer, LoopbackServer, Request


class AwsProxy(LoopbackServer):
    """`endpoint_url` is for the connector. What `answer` does with a request is a test's matter."""

    def __init__(self, endpoint_url: str) -> None:
        self._behind = urlsplit(endpoint_url).netloc

    def answer(self, request: Request) -> Answer:
        """Answer a request, on a thread of its own."""
        return self.pass_on(request)

    def pass_on(self, request: Request) -> Answer:
        """Return what the account behind the proxy says."""
        connection = HTTPConnection(self._behind, timeout=60)
        try:
            connection.request(request.method, request.path, request.body, dict(request.headers))
            # The response has the socket to itself once the server says that it closes the connection.
            with connection.getresponse() as response:
                return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()
