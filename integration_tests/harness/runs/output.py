"""What the connector writes to stdout, read as strictly as the platform may read it."""

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
"""What a destination may say: message type → (its member, what that member must hold)."""


class ProtocolError(AssertionError):
    """The connector did what a destination must not do."""


@dataclass(frozen=True)
class Message:
    """One line of the connector's stdout."""

    raw: bytes
    """The line as it was written, without its newline."""
    type: str
    body: Mapping[str, Any]
    """The member that the type names, for example `state` of a STATE."""

    @classmethod
    def parse(cls, raw: bytes) -> Self:
        """Read a line; raises ProtocolError unless it is one of a destination's messages."""
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
    """What a run of the connector left to see once it has ended."""

    exit_code: int
    messages: Sequence[Message]
    stderr: str
    seconds: float

    @property
    def states(self) -> list[Message]:
        """The states released, in order."""
        return self._select("STATE")

    @property
    def logs(self) -> list[str]:
        """The texts of the LOG messages, each after its level: `INFO: …`."""
        return [f"{message.body['level']}: {message.body['message']}" for message in self._select("LOG")]

    @property
    def errors(self) -> list[Mapping[str, Any]]:
        """The `error` bodies of the TRACE messages."""
        return [trace.body["error"] for trace in self._select("TRACE") if trace.body["type"] == "ERROR"]

    @property
    def traces(self) -> list[Message]:
        """The TRACE messages, errors included."""
        return self._select("TRACE")

    @property
    def spec(self) -> Mapping[str, Any]:
        """The one SPEC."""
        return self._select_one("SPEC")

    @property
    def connection_status(self) -> Mapping[str, Any]:
        """The one CONNECTION_STATUS."""
        return self._select_one("CONNECTION_STATUS")

    @property
    def refusal(self) -> str:
        """The message of a check that answered FAILED, which is an answer and not a failure."""
        assert self.exit_code == 0, self.report()
        assert self.connection_status["status"] == "FAILED"
        message: str = self.connection_status["message"]
        return message

    def report(self) -> str:
        """Tell what a user would have seen, for a failing assertion."""
        errors = "\n".join(json.dumps(error) for error in self.errors)
        logs = "\n".join(self.logs[-30:])
        return f"exit code {self.exit_code}\n{errors}\n{logs}\n--- stderr\n{self.stderr[-6000:]}"

    def _select(self, kind: str) -> list[Message]:
        return [message for message in self.messages if message.type == kind]

    def _select_one(self, kind: str) -> Mapping[str, Any]:
        messages = self._select(kind)
        if len(messages) != 1:
            raise ProtocolError(f"{len(messages)} messages of type {kind}, one was asked for\n{self.report()}")
        return messages[0].body


def same_text(left: bytes, right: bytes) -> bool:
    """Tell whether two JSON texts differ in nothing but the white space between their tokens."""
    return _TOKENS.findall(left) == _TOKENS.findall(right)


def without_stats(state: bytes) -> bytes:
    """Return a STATE line without the `destinationStats` that the connector added to it."""
    return _STATS.sub(lambda match: match["comma"] if match["before"] and match["after"] else b"", state, count=1)


def record_count(state: Message) -> float:
    """Return `destinationStats.recordCount`; raises ProtocolError unless it is spelled with a decimal point."""
    if not _COUNT.search(state.raw):
        raise ProtocolError(f"a state without a decimal destinationStats.recordCount: {state.raw!r}")
    count: float = state.body["destinationStats"]["recordCount"]
    return count


_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[^\s"{}\[\]:,]+|[{}\[\]:,]')
_STATS = re.compile(rb'(?P<before>,)?\s*"destinationStats"\s*:\s*\{[^{}]*\}\s*(?P<after>(?P<comma>,))?')
_COUNT = re.compile(rb'"recordCount"\s*:\s*\d+\.\d+')
