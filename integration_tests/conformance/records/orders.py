"""The stream that records are sent to: `orders`, with an id and a name."""

import json

from integration_tests.harness.messages import EMITTED_AT, configured_stream, status
from integration_tests.harness.warehouse import INTEGER, STRING, object_schema

SCHEMA = object_schema(id=INTEGER, name=STRING)
ORDERS = configured_stream("orders", SCHEMA)
COMPLETE = status("orders", "COMPLETE")


def line(data: str, **beside: object) -> bytes:
    """Return a RECORD of `orders` with this JSON text as its data and these members beside it."""
    members = {"stream": "orders", "emitted_at": EMITTED_AT, **beside}
    return f'{{"type":"RECORD","record":{{"data":{data},{json.dumps(members)[1:]}}}'.encode()
