"""A proxy in front of the emulated AWS, with which tests observe and change the connector's requests."""

from http.client import HTTPConnection
from urllib.parse import urlsplit

from integration_tests.harness.loopback import Answer, LoopbackServer, Request


class AwsProxy(LoopbackServer):
    """A proxy in front of the emulated AWS. Give its `endpoint_url` to the connector.

    By default, forwards every request. Subclasses override `answer` to observe or change requests and responses.
    """

    def __init__(self, endpoint_url: str) -> None:
        self._behind = urlsplit(endpoint_url).netloc

    def answer(self, request: Request) -> Answer:
        """Return the response to a request. Called on a separate thread for each connection."""
        return self.pass_on(request)

    def pass_on(self, request: Request) -> Answer:
        """Forward a request to the emulated AWS, and return the response."""
        connection = HTTPConnection(self._behind, timeout=60)
        try:
            connection.request(request.method, request.path, request.body, dict(request.headers))
            # If the server announces that it closes the connection, the response takes over the socket and must be
            # closed.
            with connection.getresponse() as response:
                return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()
