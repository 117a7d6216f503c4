"""How a catalog refuses a request: the specification's `IcebergErrorResponse`."""

import msgspec

from integration_tests.harness.loopback import Answer


class Refused(Exception):
    """A status, and the type of error that the specification's examples or the reference implementation give it."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind

    def answer(self) -> Answer:
        """Return the answer that says it."""
        error = {"message": str(self), "type": self.kind, "code": self.status}
        return Answer(self.status, {"Content-Type": "application/json"}, msgspec.json.encode({"error": error}))


def bad_request(message: str) -> Refused:
    """The request can never be carried out."""
    return Refused(400, "BadRequestException", message)
