"""Generate deterministic files of Airbyte messages. Each file is generated once and kept in the temporary directory."""

from __future__ import annotations

import json
import os
import random
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

POOL = 20_000  # distinct record tails; identifiers, hashes and scores differ in every record
STATE_EVERY = 10_000  # records between two states, as a database source sends them
FIRST_EMITTED_AT = 1_700_000_000_000  # epoch milliseconds
READ_WITHIN_MS = 90 * 60 * 1000  # of records with dates: two hours of the day, or three
WIDE_COLUMNS = 300
CURSOR = "updated_at"
WIDE_SHARE = 16  # a wide record weighs as much as 16 to 18 flat ones: about equal bytes for both

MIXING = 0x9E3779B97F4A7C15
"""An odd factor, which maps the 64-bit numbers one-to-one: a fast, repeatable source of values that do not compress."""

Properties = Mapping[str, Mapping[str, object]]

_INTEGER = {"type": ["null", "integer"]}
_NUMBER = {"type": ["null", "number"]}
_BOOLEAN = {"type": ["null", "boolean"]}
_STRING = {"type": ["null", "string"]}
_INSTANT = {"type": ["null", "string"], "format": "date-time", "airbyte_type": "timestamp_with_timezone"}
_OPEN_OBJECT = {"type": ["null", "object"], "additionalProperties": True}
_OPEN_ARRAY = {"type": ["null", "array"]}

_FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)

_HEAD: Properties = {"id": _INTEGER, "ref": _STRING, "email": _STRING, "score": _NUMBER}


@dataclass(frozen=True)
class Dates:
    """Times spread evenly over `days` days from 2024-01-01, in the order of the records or in random order."""

    days: int
    ordered: bool = False

    def instant(self, number: int, records: int, mixed: int) -> str:
        """Return the time of record `number` of `records`. `mixed` is a 64-bit number that is unique to the record."""
        share = number / records if self.ordered else mixed / (1 << 64)
        return (_FIRST_DAY + timedelta(days=self.days * share)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True)
class Shape:
    """The columns of a stream, and the part of a record that is taken from a pool of random records.

    - `quoted`: numbers are sent as strings, as in version 1 of the protocol.
    - `flawed_every`: one of this many records contains a text instead of a number.
    - `dates`: each record has a cursor, `updated_at`. All records of a workload are read within 90 minutes.
    """

    name: str
    properties: Properties
    tail: Callable[[random.Random], dict[str, object]]
    quoted: bool = False
    flawed_every: int | None = None
    dates: Dates | None = None


@dataclass(frozen=True)
class Workload:
    """`records` records of one shape, distributed to `streams` streams in turn.

    There is a state after every 10,000 records and at the end.
    """

    shape: Shape
    records: int
    streams: int = 1

    @property
    def name(self) -> str:
        """The name of the shape or, for workloads with many streams, the number of streams."""
        return self.shape.name if self.streams == 1 else f"{self.streams} streams"

    @property
    def stream_names(self) -> tuple[str, ...]:
        """The names of the streams, which are also valid as identifiers in a catalog."""
        if self.streams == 1:
            return (self.shape.name.replace(" ", "_"),)
        return tuple(f"{self.shape.name}_{number:03d}" for number in range(self.streams))

    def records_of(self, stream: int) -> int:
        """Return the number of records of the stream at this position."""
        return len(range(stream, self.records, self.streams))

    @property
    def states(self) -> int:
        """The number of states in the message file."""
        return self.streams if self.streams > 1 else -(-self.records // STATE_EVERY)

    def catalog(self) -> dict[str, object]:
        """The configured catalog: every stream is appended, with generation ID 1 and sync ID 1."""
        return {"streams": [self._configured(name) for name in self.stream_names]}

    def messages(self) -> Path:
        """Return the path of the message file. Writes the file if it is missing or this module has changed."""
        folder = cache_folder()
        stem = f"{self.name.replace(' ', '_')}-{self.streams}x{self.records}"
        path = folder / f"{stem}-{zlib.crc32(Path(__file__).read_bytes()):08x}.jsonl"
        if not path.exists():
            for outdated in folder.glob(f"{stem}-*"):
                outdated.unlink(missing_ok=True)
            unfinished = path.with_suffix(f".{os.getpid()}")
            with unfinished.open("wb", buffering=1 << 20) as file:
                file.writelines(self._lines())
            unfinished.rename(path)
        return path

    def numbers(self) -> Iterator[int]:
        """Yield a number for each record, in the order of the records. The number determines the record."""
        return iter(range(self.records))

    def cursor(self, _position: int, number: int, mixed: int) -> str:
        """Return the cursor of a record. `mixed` has the same meaning as in `Dates.instant`."""
        assert self.shape.dates is not None
        return self.shape.dates.instant(number, self.records, mixed)

    def _configured(self, name: str) -> dict[str, object]:
        schema = {"type": "object", "properties": dict(self.shape.properties)}
        return {
            "stream": {"name": name, "json_schema": schema, "supported_sync_modes": ["full_refresh", "incremental"]},
            "sync_mode": "full_refresh",
            "cursor_field": [CURSOR] if self.shape.dates else [],
            "destination_sync_mode": "append",
            "generation_id": 1,
            "minimum_generation_id": 0,
            "sync_id": 1,
        }

    def _lines(self) -> Iterator[bytes]:
        dice = random.Random(self.shape.name)
        tails = [_json(self.shape.tail(dice))[1:] for _ in range(min(POOL, self.records))]
        heads = [f'{{"type":"RECORD","record":{{"stream":"{name}","data":'.encode() for name in self.stream_names]
        dated = self.shape.dates is not None
        pace = READ_WITHIN_MS / self.records if dated else 1
        for position, number in enumerate(self.numbers()):
            mixed = number * MIXING & 0xFFFFFFFFFFFFFFFF
            flawed = self.shape.flawed_every is not None and number % self.shape.flawed_every == 0
            score = b'"a text"' if flawed else _number(b"%.15f" % ((mixed >> 11) / (1 << 53)), quoted=self.shape.quoted)
            cursor = b'"%b":"%b",' % (CURSOR.encode(), self.cursor(position, number, mixed).encode()) if dated else b""
            yield b'%b{%b"id":%b,"ref":"%016x%016x","email":"user%d@example.com","score":%b,%b,"emitted_at":%d}}\n' % (
                heads[position % self.streams],
                cursor,
                _number(b"%d" % number, quoted=self.shape.quoted),
                mixed,
                mixed ^ number << 20,
                mixed >> 40,
                score,
                tails[number % len(tails)],
                FIRST_EMITTED_AT + int(position * pace),
            )
            if self.streams == 1 and (position + 1) % STATE_EVERY == 0 and position + 1 < self.records:
                yield _state(self.stream_names[0], position + 1, STATE_EVERY)
        for position, name in enumerate(self.stream_names):
            unclaimed = self.records_of(position)
            if self.streams == 1:
                unclaimed = (unclaimed - 1) % STATE_EVERY + 1
            yield _state(name, self.records_of(position), unclaimed)
        for name in self.stream_names:
            yield _complete(name, FIRST_EMITTED_AT + self.records)


def cache_folder() -> Path:
    """Return the folder for files that take long to create and are the same for every run."""
    folder = Path(tempfile.gettempdir()) / "destination-datalake-benchmarks"
    folder.mkdir(exist_ok=True)
    return folder


def _number(digits: bytes, *, quoted: bool) -> bytes:
    return b'"%b"' % digits if quoted else digits


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _state(stream: str, cursor: int, records: int) -> bytes:
    state = {
        "type": "STREAM",
        "stream": {"stream_descriptor": {"name": stream}, "stream_state": {"cursor": cursor}},
        "sourceStats": {"recordCount": float(records)},
        "id": cursor,
    }
    return _json({"type": "STATE", "state": state}) + b"\n"


def _complete(stream: str, emitted_at: int) -> bytes:
    status = {"stream_descriptor": {"name": stream}, "status": "COMPLETE"}
    trace = {"type": "STREAM_STATUS", "emitted_at": float(emitted_at), "stream_status": status}
    return _json({"type": "TRACE", "trace": trace}) + b"\n"


def _words(dice: random.Random, characters: int) -> str:
    words = (
        "ship",
        "order",
        "customer",
        "paid",
        "late",
        "gift",
        "return",
        "north",
        "blue",
        "parcel",
        "express",
        "note",
    )
    text = ""
    while len(text) < characters:
        text += dice.choice(words) + " "
    return text[:characters].rstrip()


def _instant(dice: random.Random) -> str:
    return (
        f"2024-{dice.randint(1, 12):02d}-{dice.randint(1, 28):02d}"
        f"T{dice.randint(0, 23):02d}:{dice.randint(0, 59):02d}:{dice.randint(0, 59):02d}.{dice.randrange(10**6):06d}Z"
    )


def _flat_tail(dice: random.Random) -> dict[str, object]:
    return {
        "name": f"customer {dice.randrange(10**6)}",
        "amount": dice.randrange(10**6) / 100,
        "quantity": dice.randrange(100),
        "active": dice.random() < 0.5,
        "created_at": _instant(dice),
        "country": dice.choice(("DE", "FR", "US", "IN", "BR")),
        "note": _words(dice, 83),
        "status": dice.choice(("new", "paid", "sent", "done")),
    }


def _open_tail(dice: random.Random) -> dict[str, object]:
    return {
        "payload": {"amount": dice.randrange(10**6) / 100, "lines": [dice.randrange(10**5) for _ in range(4)]},
        "tags": [dice.choice(("new", "gift", "late", 1, None)) for _ in range(4)],
        "context": {"agent": _words(dice, 24), "page": {"path": f"/shop/{dice.randrange(10**4)}"}, "at": None},
        "created_at": _instant(dice),
        "status": dice.choice(("new", "paid", "sent", "done")),
    }


def _wide_tail(dice: random.Random) -> dict[str, object]:
    return {name: _WIDE_KINDS[position % 6][1](dice) for position, name in enumerate(_WIDE_NAMES)}


_WIDE_NAMES = tuple(f"column_{number:03d}" for number in range(len(_HEAD), WIDE_COLUMNS))
_WIDE_KINDS: tuple[tuple[Mapping[str, object], Callable[[random.Random], object]], ...] = (
    (_INTEGER, lambda dice: dice.randrange(10**6)),
    (_STRING, lambda dice: _words(dice, 16)),
    (_NUMBER, lambda dice: dice.randrange(10**6) / 100),
    (_STRING, lambda dice: dice.choice(("new", "paid", "sent", "done"))),
    (_INSTANT, _instant),
    (_BOOLEAN, lambda dice: dice.random() < 0.5),
)

FLAT = Shape(
    "flat",
    {
        **_HEAD,
        "name": _STRING,
        "amount": _NUMBER,
        "quantity": _INTEGER,
        "active": _BOOLEAN,
        "created_at": _INSTANT,
        "country": _STRING,
        "note": _STRING,
        "status": _STRING,
    },
    _flat_tail,
)
FLAWED = {every: replace(FLAT, name=f"one bad in {every}", flawed_every=every) for every in (1000, 10)}
QUOTED = replace(
    FLAT,
    name="numbers as strings",
    tail=lambda dice: {
        name: str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
        for name, value in _flat_tail(dice).items()
    },
    quoted=True,
)
MONTH, MONTH_IN_ORDER, LONG, DAYS = (
    replace(FLAT, name=name, properties={CURSOR: _INSTANT, **FLAT.properties}, dates=dates)
    for name, dates in (
        ("dated over 30 days", Dates(30)),
        ("dated over 30 days in order", Dates(30, ordered=True)),
        ("dated over 500 days", Dates(500)),
        ("dated over 3 days in order", Dates(3, ordered=True)),
    )
)
OPEN = Shape(
    "open",
    {
        **_HEAD,
        "payload": _OPEN_OBJECT,
        "tags": _OPEN_ARRAY,
        "context": _OPEN_OBJECT,
        "created_at": _INSTANT,
        "status": _STRING,
    },
    _open_tail,
)
WIDE = Shape(
    "wide",
    {**_HEAD, **{name: _WIDE_KINDS[position % 6][0] for position, name in enumerate(_WIDE_NAMES)}},
    _wide_tail,
)
