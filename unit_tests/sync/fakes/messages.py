"""What a source sends, and what a sync writes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any


def record(stream: str, padding: int = 0) -> bytes:
    data = json.dumps({"x": "x" * padding})
    return f'{{"type":"RECORD","record":{{"stream":"{stream}","data":{data},"emitted_at":1}}}}'.encode()


def state(number: int, stream: str | None) -> bytes:
    body: dict[str, Any] = {"type": "GLOBAL", "global": {"shared_state": {}}}
    if stream is not None:
        body = {"type": "STREAM", "stream": {"stream_descriptor": {"name": stream}}}
    return json.dumps({"type": "STATE", "state": {**body, "id": number}}, separators=(",", ":")).encode()


def parsed(output: bytes) -> list[dict[str, Any]]:
    """Return the messages that a sync wrote."""
    return [json.loads(line) for line in output.splitlines()]


def states(messages: Iterable[dict[str, Any]]) -> list[int]:
    """The numbers of the states among the messages."""
    return [message["state"]["id"] for message in messages if message["type"] == "STATE"]


def failures(messages: Iterable[dict[str, Any]]) -> dict[str | None, tuple[str, str]]:
    """The type and the message of each failure by stream; the whole sync's is None's."""
    errors = [message["trace"]["error"] for message in messages if message["type"] == "TRACE"]
    return {
        error.get("stream_descriptor", {}).get("name"): (error["failure_type"], error["message"]) for error in errors
    }
