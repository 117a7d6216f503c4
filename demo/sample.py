"""The demo's sample: a small shop, 60,000 records in three streams, the same on every machine."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from integration_tests.harness.messages import configured_catalog, configured_stream, record, state, status

NAMESPACE = "shop"
STATE_EVERY = 5_000
"""Records between two states of a stream."""

_START = datetime(2024, 1, 1, tzinfo=UTC)
_CITIES = ("Lisboa", "Zürich", "København", "São Paulo", "京都")
_TIMESTAMP = {"type": "string", "format": "date-time"}

SCHEMAS: dict[str, dict[str, object]] = {
    "customers": {
        "id": {"type": "integer"},
        "name": {"type": "string"},
        "city": {"type": ["null", "string"]},
        "bornOn": {"type": "string", "format": "date"},
        "isPremium": {"type": "boolean"},
    },
    "orders": {
        "id": {"type": "integer"},
        "customerId": {"type": "integer"},
        "placedAt": _TIMESTAMP,
        "total": {"type": "number"},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string"}},
        },
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"sku": {"type": "string"}, "quantity": {"type": "integer"}},
            },
        },
    },
    "events": {
        "id": {"type": "integer"},
        "happenedAt": _TIMESTAMP,
        "kind": {"type": "string"},
        "payload": {"type": "object"},
    },
}
"""Properties by stream: flat columns, nested closed objects, and an object that is open and stays JSON text."""

SIZES = {"customers": 10_000, "orders": 30_000, "events": 20_000}
"""Records by stream."""


@dataclass(frozen=True)
class Sample:
    """What a source would send, on disk."""

    catalog: Path
    messages: Path
    states: int
    """How many STATE messages are among them."""


def write_sample(folder: Path) -> Sample:
    """Write the configured catalog and the messages into the folder."""
    modes = {"customers": ("overwrite", 1), "orders": ("append", 0), "events": ("append", 0)}
    catalog = configured_catalog(
        *(
            configured_stream(
                stream,
                {"type": "object", "properties": SCHEMAS[stream]},
                namespace=NAMESPACE,
                mode="overwrite" if mode == "overwrite" else "append",
                generation=generation,
                minimum=generation,
            )
            for stream, (mode, generation) in modes.items()
        )
    )
    sample = Sample(folder / "catalog.json", folder / "messages.jsonl", sum(SIZES.values()) // STATE_EVERY)
    sample.catalog.write_text(json.dumps(catalog))
    with sample.messages.open("wb") as file:
        file.writelines(line + b"\n" for line in _lines())
    return sample


def _lines() -> Iterator[bytes]:
    chance = random.Random(7)
    for stream, size in SIZES.items():
        for number in range(1, size + 1):
            at = _START + timedelta(seconds=37 * number)
            yield record(
                stream, _data(stream, number, at, chance), namespace=NAMESPACE, emitted_at=int(at.timestamp() * 1000)
            )
            if number % STATE_EVERY == 0:
                yield state(stream, number, namespace=NAMESPACE)
    for stream in SIZES:
        yield status(stream, "COMPLETE", namespace=NAMESPACE)


def _data(stream: str, number: int, at: datetime, chance: random.Random) -> dict[str, object]:
    match stream:
        case "customers":
            return {
                "id": number,
                "name": f"Customer {number}",
                "city": chance.choice((*_CITIES, None)),
                "bornOn": f"{chance.randint(1940, 2005)}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}",
                "isPremium": chance.random() < 0.2,
            }
        case "orders":
            return {
                "id": number,
                "customerId": chance.randint(1, SIZES["customers"]),
                "placedAt": at.isoformat(),
                "total": chance.randint(100, 99_999) / 100,
                "address": {
                    "street": f"{chance.randint(1, 200)} Main Street",
                    "zip": f"{chance.randint(0, 99_999):05}",
                },
                "lines": [
                    {"sku": f"SKU-{chance.randint(1, 500):03}", "quantity": chance.randint(1, 9)}
                    for _ in range(chance.randint(1, 3))
                ],
            }
        case _:
            kind = chance.choice(("viewed", "clicked", "searched"))
            payload = {"terms": ["blue", "chair"]} if kind == "searched" else {"page": {"id": chance.randint(1, 999)}}
            return {"id": number, "happenedAt": at.isoformat(), "kind": kind, "payload": payload}
