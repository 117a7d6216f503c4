"""A source of all kinds of fields, whose schema changes from sync to sync, and what it sends.

Ordinary values are all different, so that a reader can tell which field one comes from. The others are at the ends of
their types' ranges, or do not fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from random import Random
from typing import Any, NamedTuple

from integration_tests.chaos.attempts.source import CONFIDENTIAL, STREAM, TOO_LATE, Sending, Sent, Source
from integration_tests.chaos.attempts.versions import CURSOR, DELETED_AT, VersionedSource
from integration_tests.harness.messages import EMITTED_AT, Json, record

Path = tuple[str, ...]
"""Names from the root; an element of a list is `[]`."""


class Kind(NamedTuple):
    """A type of values that have no parts, or whose parts no schema declares.

    `doubtful` values fit some columns for the type and not others: they are kept exactly, or changed and rejected.
    """

    schema: Json
    ordinary: Any
    edges: Sequence[object]
    doubtful: Sequence[object]


def _text(number: int) -> str:
    return f"{CONFIDENTIAL} {number}"


def _day(number: int) -> str:
    return str(date(1930, 1, 1) + timedelta(days=number))


def _moment(number: int) -> str:
    return (datetime(1960, 1, 1, tzinfo=UTC) + timedelta(hours=7 * number, microseconds=number)).isoformat()


KINDS: Mapping[str, Kind] = {
    "integer": Kind(
        {"type": "integer"},
        lambda number: number,
        (0, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63), 2**53 + 1),
        (2**63, -(2**63) - 1, "many", 1.5, True, {"no": 1}),
    ),
    "number": Kind(
        {"type": "number"},
        lambda number: number + 1 / 64,
        (0.1, 0, -1.5, 16777217, 123456789.125, 1e15),
        (1e308, 5e-324, 1e23, 10**400, "many", False, [1]),
    ),
    "boolean": Kind({"type": "boolean"}, lambda number: number % 2 == 0, (True, False), ("yes", 1)),
    "string": Kind(
        {"type": "string"},
        _text,
        ("", " ", "null", "é😀", 'a\nb\t"q"\\', "\x00", "__HIVE_DEFAULT_PARTITION__", "a/b=c%2F", "x" * 300),
        (),
    ),
    "date": Kind(
        {"type": "string", "format": "date"},
        _day,
        ("0001-01-01", "9999-12-31", "1969-12-31", "1582-10-10", "2024-02-29"),
        ("2023-02-29", "soon", 20240229, "10000-01-01"),
    ),
    "moment": Kind(
        {"type": "string", "format": "date-time"},
        _moment,
        (
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999Z",
            "1969-12-31T23:59:59.999999Z",
            "2024-02-29T12:00:00+05:30",
        ),
        ("soon", 5, "2024-02-30T00:00:00Z"),
    ),
    "clock": Kind(
        {"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"},
        lambda number: _moment(number).removesuffix("+00:00"),
        ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999", "1969-12-31T23:59:59"),
        ("soon", 5),
    ),
    "time": Kind(
        {"type": "string", "format": "time"}, lambda number: f"12:{number % 60:02d}:00.{number:06d}", ("00:00:00",), ()
    ),
    "anything": Kind(
        {}, lambda number: {"K": _text(number)}, (5, "text", [1, None], True, {"a": {"B": []}}, 0.1, "", {}, []), ()
    ),
    "open object": Kind({"type": "object"}, lambda number: {"K": _text(number)}, ({}, {"a": [None]}), ()),
    "open list": Kind({"type": "array"}, lambda number: [number, _text(number)], ([], [None], [[1], {}]), ()),
    "union": Kind({"type": ["string", "integer"]}, _text, (5, "", "5"), ()),
}

NAMES = ("alpha", "beta", "gamma", "delta")
CLASHING = ("+1", "-1", "aB", "a_b", "a b", "A_B", "ключ", "1st", "_id", "group", "sum(x)", "x.y")


@dataclass(frozen=True)
class Shape:
    """A type: one of `KINDS`, an object with members or a list of elements. `form` says how the schema spells it."""

    kind: str
    members: Mapping[str, "Shape"] = field(default_factory=dict)
    form: str = "plain"
    nullable: bool = False

    def schema(self) -> dict[str, object]:
        """Return the JSON schema, with what it refers to."""
        named: dict[str, object] = {}
        schema = self._schema(named)
        return {**schema, "$defs": named} if named else schema

    def _schema(self, named: dict[str, object]) -> dict[str, object]:
        if self.kind == "list":
            plain: dict[str, object] = {"type": "array", "items": self.members["[]"]._schema(named)}
        elif self.kind == "object":
            return _spelled(self.form, {name: member._schema(named) for name, member in self.members.items()}, named)
        else:
            plain = dict(KINDS[self.kind].schema)
        if self.nullable and isinstance(plain.get("type"), str):
            plain["type"] = ["null", plain["type"]]
        return plain


FORMS = ("plain", "nullable", "$ref", "allOf", "oneOf", "anyOf")


def _spelled(form: str, properties: Mapping[str, object], named: dict[str, object]) -> dict[str, object]:
    """Return the schema of an object, in one of the ways that JSON Schema has for it."""
    whole: dict[str, object] = {"type": "object", "properties": dict(properties)}
    names = [*properties]
    halves = [
        {"type": "object", "properties": {name: properties[name] for name in half}}
        for half in (names[::2], names[1::2])
    ]
    match form:
        case "nullable":
            return {**whole, "type": ["null", "object"]}
        case "$ref":
            name = f"Object{len(named)}"
            named[name] = whole
            return {"$ref": f"#/$defs/{name}"}
        case "allOf":
            return {"allOf": halves}
        case "oneOf":
            return {"oneOf": [{"type": "null"}, whole]}
        case "anyOf":
            return {"type": "object", "anyOf": halves}
    return whole


@dataclass(frozen=True)
class TypedSent(Sent):
    """A record that was sent. `doubtful` are the fields whose values need not be kept, if that is told."""

    doubtful: frozenset[str] = frozenset()


@dataclass(frozen=True)
class TypedSource(Source):
    """The source of one history: its records have the columns that partitions need, and fields that come and go."""

    def schema(self, attempt: int) -> dict[str, object]:
        """Return the JSON schema that the catalog of an attempt has."""
        return _with_fields(definition(self.seed, attempt), FIXED).schema()

    def _record(self, sending: Sending, first: bool) -> TypedSent:
        random = Random(f"{self.seed}/record/{sending.position}/{sending.attempt}")
        refused = not first and random.random() < 0.03
        values = Values(random, sending)
        root = definition(self.seed, sending.attempt)
        row: dict[str, object] = {"position": sending.position, "attempt": sending.attempt}
        row |= {name: values.fixed(name) for name in FIXED if name not in row}
        for name, shape in root.members.items():
            if random.random() < 0.9:
                row[name] = values.draw(shape, name)
        row.update(self._more_values(sending.position))
        line = record(STREAM, row, emitted_at=TOO_LATE if refused else EMITTED_AT)
        return TypedSent(sending, line, None if refused else row, False, frozenset(values.doubtful))


class TypedVersions(TypedSource, VersionedSource):
    """The same of versions of rows."""

    def schema(self, attempt: int) -> dict[str, object]:
        """Return the JSON schema that the catalog of an attempt has."""
        own = {"item": "integer", "shop": "string", CURSOR: "integer", DELETED_AT: "string"}
        return _with_fields(definition(self.seed, attempt), {**FIXED, **own}).schema()


def _with_fields(root: Shape, kinds: Mapping[str, str]) -> Shape:
    return replace(root, members={**{name: Shape(kind) for name, kind in kinds.items()}, **root.members})


FIXED: Mapping[str, str] = {
    "position": "integer",
    "attempt": "integer",
    "day": "date",
    "when": "moment",
    "code": "integer",
    "label": "string",
}
"""The fields that every record has, and by which tables are partitioned."""

_FIXED_EDGES: Mapping[str, Sequence[object]] = {
    "day": ("2024-02-29", "2024-03-01", "2019-12-31", "1969-12-31", "0001-01-01", "9999-12-31", None),
    "when": ("2024-02-29T23:59:59.999999Z", "1969-12-31T23:00:00-01:00", "2019-12-31T23:30:00Z", None),
    "code": (0, -1, -10, 2**31 - 1, -(2**31), 2**63 - 1, None),
    "label": ("north", "south", "a/b=c%2F", " ", "é😀", "null", None),
}


class Values:
    """Draws the values of a record."""

    def __init__(self, random: Random, sending: Sending) -> None:
        self._random = random
        # Below 2^17, so that a 32-bit float holds the numbers that are made of it.
        self._number = (sending.attempt * 40 + sending.position % 40) * 60 + 1000
        self.doubtful: set[str] = set()

    def fixed(self, name: str) -> object:
        """Return the value of a field that partitions are of: there are few different ones."""
        return self._random.choice(_FIXED_EDGES[name])

    def draw(self, shape: Shape, top: str, depth: int = 0) -> object:
        """Return a value of a type; `top` is the field that it is of, or in."""
        random = self._random
        share = random.random()
        if share < 0.07:
            return None
        if shape.kind == "object":
            if share < 0.09:
                self.doubtful.add(top)
                return random.choice((5, "none", []))
            return {
                name: self.draw(member, top, depth + 1)
                for name, member in shape.members.items()
                if random.random() < 0.9
            }
        if shape.kind == "list":
            return [self.draw(shape.members["[]"], top, depth + 1) for _ in range(random.choice((0, 1, 1, 2)))]
        kind = KINDS[shape.kind]
        self._number += 1
        if share < 0.20 and kind.edges:
            return random.choice(kind.edges)
        if share < 0.24 and kind.doubtful:
            self.doubtful.add(top)
            return random.choice(kind.doubtful)
        return kind.ordinary(self._number)


@cache
def definition(seed: str, attempt: int) -> Shape:
    """Return what the source's records are at an attempt: it changes, or not, from one to the next."""
    if attempt <= 1:
        random = Random(f"{seed}/definition")
        names = random.sample((*NAMES, *CLASHING), random.randint(2, 4))
        return Shape("object", {name: _drawn(random, 2) for name in names}, _form(random))
    random = Random(f"{seed}/definition/{attempt}")
    before = definition(seed, attempt - 1)
    for _ in range(random.choice((0, 0, 1, 1, 1, 2))):
        before = _changed(random, before, 2)
    return replace(before, form=_form(random)) if random.random() < 0.2 else before


def _form(random: Random) -> str:
    return random.choice(FORMS) if random.random() < 0.5 else "plain"


def _drawn(random: Random, depth: int) -> Shape:
    share = random.random()
    if depth and share < 0.35:
        names = random.sample((*NAMES, *CLASHING), random.randint(1, 3))
        return Shape("object", {name: _drawn(random, depth - 1) for name in names}, _form(random))
    if depth and share < 0.5:
        return Shape("list", {"[]": _drawn(random, depth - 1)})
    return Shape(random.choice([*KINDS]), nullable=random.random() < 0.3)


def _changed(random: Random, shape: Shape, depth: int) -> Shape:
    """Return an object that has gained, lost, renamed or retyped a member, or one of whose members has."""
    members = dict(shape.members)
    inner = [name for name, member in members.items() if _object_in(member)]
    if inner and random.random() < 0.5:
        name = random.choice(inner)
        return replace(shape, members={**members, name: _changed_inside(random, members[name], depth - 1)})
    unused = [name for name in (*NAMES, *CLASHING) if name not in members]
    match random.choice(("gain", "gain", "lose", "rename", "retype", "order")):
        case "gain":
            members[random.choice(unused)] = _drawn(random, max(depth - 1, 0))
        case "lose" if len(members) > 1:
            del members[random.choice([*members])]
        case "rename":
            members[random.choice(unused)] = members.pop(random.choice([*members]))
        case "retype":
            members[random.choice([*members])] = _drawn(random, max(depth - 1, 0))
        case _:
            members = dict(random.sample([*members.items()], len(members)))
    return replace(shape, members=members)


def _changed_inside(random: Random, shape: Shape, depth: int) -> Shape:
    if shape.kind == "list":
        return replace(shape, members={"[]": _changed_inside(random, shape.members["[]"], depth)})
    return _changed(random, shape, depth)


def _object_in(shape: Shape) -> bool:
    return shape.kind == "object" or (shape.kind == "list" and _object_in(shape.members["[]"]))
