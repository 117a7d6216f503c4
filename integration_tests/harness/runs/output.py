"""Parse the connector's stdout, as strictly as the platform may."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

_BODIES: Mapping[str, tuple[str, frozenset[str]]] = {
    "SPEC": ("spec", frozenset({"connectionSpecification"})),
    "CONNECTION_STATUS": ("connectionStatus", frozenset({"status"})),
    "LOG": ("log", frozenset({"level", "message"})),
    "STATE": ("state", frozenset()),
    "TRACE": ("trace", frozenset({"type", "emitted_at"})),
}
"""Maps each message type that a destination may send to its member, and to the keys that the member must contain."""


class ProtocolError(AssertionError):
    """The connector violated the Airbyte protocol."""


@dataclass(frozen=True)
class Message:
    """A message: one line of the connector's stdout."""

    raw: bytes
    """The line as it was written, without the newline."""
    type: str
    body: Mapping[str, Any]
    """The member that belongs to the message's type, such as `state` for STATE."""

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Parse a line of stdout. Raises ProtocolError if it is not a message that a destination may send."""
        try:
            message = json.loads(raw)
            key, required = _BODIES[message["type"]]
            body = message[key]
            complete = isinstance(body, dict) and required <= body.keys()
        except (ValueError, LookupError, TypeError):
            complete = False
        if not complete:
            raise ProtocolError(f"not a message that a destination may write to stdout: {raw[:500]!r}")
        return cls(raw, message["type"], body)


@dataclass(frozen=True)
class Run:
    """The outcome of a run that has ended: exit code, messages, and text on stderr."""

    exit_code: int
    messages: Sequence[Message]
    stderr: str
    seconds: float

    @property
    def states(self) -> list[Message]:
        """The STATE messages, in order."""
        return self._select("STATE")

    @property
    def logs(self) -> list[str]:
        """The texts of the LOG messages, each after its level: `INFO: …`."""
        return [f"{message.body['level']}: {message.body['message']}" for message in self._select("LOG")]

    @property
    def errors(self) -> list[Mapping[str, Any]]:
        """The member `error` of each TRACE message about an error."""
        return [trace.body["error"] for trace in self._select("TRACE") if trace.body["type"] == "ERROR"]

    @property
    def traces(self) -> list[Message]:
        """All TRACE messages, including errors."""
        return self._select("TRACE")

    @property
    def spec(self) -> Mapping[str, Any]:
        """The body of the only SPEC message."""
        return self._select_one("SPEC")

    @property
    def connection_status(self) -> Mapping[str, Any]:
        """The body of the only CONNECTION_STATUS message."""
        return self._select_one("CONNECTION_STATUS")

    @property
    def refusal(self) -> str:
        """The message of a check with the status FAILED. Such a check is a successful run of the connector."""
        assert self.exit_code == 0, self.report()
        assert self.connection_status["status"] == "FAILED"
        message: str = self.connection_status["message"]
        return message

    def report(self) -> str:
        """Return what a user would have seen, for the message of a failed assertion."""
        errors = "\n".join(json.dumps(error) for error in self.errors)
        logs = "\n".join(self.logs[-30:])
        # The fault handler prints the thread that crashed near the beginning.
        stderr = self.stderr if len(self.stderr) < 12_000 else f"{self.stderr[:6000]}\n…\n{self.stderr[-6000:]}"
        return f"exit code {self.exit_code}\n{errors}\n{logs}\n--- stderr\n{stderr}"

    def _select(self, kind: str) -> list[Message]:
        return [message for message in self.messages if message.type == kind]

    def _select_one(self, kind: str) -> Mapping[str, Any]:
        messages = self._select(kind)
        if len(messages) != 1:
            raise ProtocolError(f"{len(messages)} messages of type {kind}, one was asked for\n{self.report()}")
        return messages[0].body


def same_text(left: bytes, right: bytes) -> bool:
    """Return whether two JSON texts differ only in the white space between tokens."""
    return _TOKENS.findall(left) == _TOKENS.findall(right)


def without_stats(state: bytes) -> bytes:
    """Return a STATE line without the `destinationStats` that the connector added."""
    return _STATS.sub(lambda match: match["comma"] if match["before"] and match["after"] else b"", state, count=1)


def record_count(state: Message) -> float:
    """Return `destinationStats.recordCount`. Raises ProtocolError if it is not written with a decimal point."""
    if not _COUNT.search(state.raw):
        raise ProtocolError(f"a state without a decimal destinationStats.recordCount: {state.raw!r}")
    count: float = state.body["destinationStats"]["recordCount"]
    return count


_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s"{}\[\]:,]+|[{}\[\]:,]')
_STATS = re.compile(rb'(?P<before>,)?\s*"destinationStats"\s*:\s*\{[^{}]*\}\s*(?P<after>(?P<comma>,))?')
_COUNT = re.compile(rb'"recordCount"\s*:\s*\d+\.\d+')
