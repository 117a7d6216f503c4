"""Generates tables in the pages from the connector's own rules: `python -m docs.generator`.

A table stands between `<!-- table: name -->` and `<!-- end -->`; the words around it are written by hand.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from destination_datalake.records.decoded import ValueChange
from destination_datalake.records.values.registry import rules_for
from destination_datalake.records.values.rules import Floats, Value
from destination_datalake.reports import report
from destination_datalake.schema.arrow import arrow_type
from destination_datalake.schema.evolution import WIDER, AddColumn, Widen, evolve, redirect_suffix
from destination_datalake.schema.glue import describe_type, glue_type
from destination_datalake.schema.iceberg import iceberg_type
from destination_datalake.schema.json_schema import WELL_KNOWN, column_type
from destination_datalake.schema.names import AWS_DATALAKE, PRESERVE, SNAKE_CASE, SNAKE_CASE_NUMBERS
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    NumericTypes,
    String,
    Struct,
    Timestamp,
)
from docs.generator import layouts, permissions
from docs.generator.columns import airbyte_types, inherited, nested
from docs.generator.markdown import code, table
from docs.generator.project import check_steps, licences, promises, sync_modes, versions
from docs.generator.spec import SPEC, spec_text

PAGES = Path(__file__).parents[1]
REPORT_SCHEMA = Path(report.__file__).with_name("report.schema.json")
_EPOCH = datetime(1970, 1, 1)
_TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)

EXAMPLE_TYPES: Sequence[ColumnType] = (
    Boolean(),
    Int32(),
    Int64(),
    Float32(),
    Float64(),
    Decimal(38, 0),
    Decimal(38, 18),
    String(),
    Json(),
    Date(),
    Timestamp(zoned=True),
    Timestamp(zoned=False),
    Struct((Field("id", "id", Int32()), Field("tag", "tag", String()))),
    List(String()),
)

_SCHEMAS = (
    '{"type": "string"}',
    '{"type": "string", "format": "date"}',
    '{"type": "string", "format": "date-time"}',
    '{"type": "string", "format": "date-time", "airbyte_type": "timestamp_without_timezone"}',
    '{"type": "string", "format": "time"}',
    '{"type": "string", "contentEncoding": "base64"}',
    '{"type": "boolean"}',
    '{"type": "integer"}',
    '{"type": "number"}',
    '{"type": "number", "airbyte_type": "integer"}',
    '{"type": "number", "airbyte_type": "big_number"}',
    '{"type": ["null", "integer"]}',
    '{"type": ["string", "integer"]}',
    '{"oneOf": [{"type": "integer"}, {"type": "null"}]}',
    '{"oneOf": [{"type": "integer"}, {"type": "string"}]}',
    '{"type": ["integer", "number"]}',
    '{"anyOf": [{"type": "string", "format": "date"}, {"type": "string"}]}',
    '{"enum": ["open", "closed"]}',
    '{"enum": ["open", 1]}',
    '{"allOf": [{"properties": {"id": {"type": "integer"}}}, {"properties": {"at": {"type": "string"}}}]}',
    '{"oneOf": [{"properties": {"id": {"type": "integer"}}}, {"properties": {"at": {"type": "string"}}}]}',
    '{"type": "object", "properties": {"id": {"type": "integer"}}}',
    '{"type": "object"}',
    '{"type": "array", "items": {"type": "string"}}',
    '{"type": "array"}',
    "{}",
)

_VALUES: Sequence[tuple[ColumnType, Sequence[str]]] = (
    (Boolean(), ("true", '"true"', "1")),
    (Int32(), ("42", '"42"', "42.0", "1.5", '" 42 "', '""', '"forty-two"', "2147483648", "9223372036854775808")),
    (Float32(), ("56.78", '"56.78"', "1e400", '"NaN"', '"Infinity"', "true")),
    (Decimal(38, 18), ("0.1", '"0.1"', "0.1234567890123456789", "123456789012345678901")),
    (String(), ('" as it is "', "1.50", "true", '{"a":1}', '"\\ud800"')),
    (Json(), ('{ "b":1, "a":[] }', "1.50", '"text"')),
    (
        Date(),
        (
            '"2024-02-29"',
            '"2024/2/29"',
            '"2024-02-29T00:00:00Z"',
            '"2024-02-29T12:00:00Z"',
            '"2023-02-29"',
            '"0000-00-00"',
            '"10000-01-01"',
            "20240229",
        ),
    ),
    (
        Timestamp(zoned=True),
        (
            '"2024-02-29T12:00:00Z"',
            '"2024-02-29T12:00:00+05:30"',
            '"2024-02-29 12:00:00"',
            '"2024-02-29"',
            '" 2024-02-29T12:00:00+01:00[Europe/Berlin] "',
            '"2024-02-29 12:00:00 +0000 UTC"',
            '"20240229T120000Z"',
            '"2024-02-29T24:00:00Z"',
            '"2024-02-29T12:00:00+05:53:28"',
            '"2016-12-31T23:59:60Z"',
            '""',
            '"2024-02-29T12:00:00.123456789Z"',
            '"0044-03-15T00:00:00Z BC"',
            "1709208000",
        ),
    ),
    (Timestamp(zoned=False), ('"2024-02-29T12:00:00"', '"2024-02-29T12:00:00+05:30"')),
    (List(Int32()), ("[1, null]", '[1, "two"]', '"[1]"')),
    (Struct((Field("id", "id", Int32()),)), ('{"id": 1}', '{"id": "x"}', '"{}"')),
)

_NAMES = (
    "order",
    "timestamp",
    "CamelCase123Key",
    "streamWithCamelCase",
    "HTTPServerID",
    "omega v2",
    "9mega",
    "path to $1,00,000",
    "Foo.Bar",
    "_id",
    "name_",
    "stream-with:spécial:character_names",
    "Cízǔ",
    "Straße",
    "Łódź",
    "ключ",
    "京都",
    "हिन्दी",
    "こんにちは",
    "🎉",
    "@#$%",
)
_COLLIDING = ("a_b", "aB", "a b", "+1", "-1")


def main() -> None:
    """Regenerate spec.json, the schema of reports, and the tables of every page."""
    SPEC.write_text(spec_text(), encoding="utf-8")
    REPORT_SCHEMA.write_text(json.dumps(report.schema(), indent=2) + "\n", encoding="utf-8")
    for page in sorted(PAGES.rglob("*.md")):
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


def with_tables(text: str) -> str:
    """Return a page's text with every table regenerated. Raises KeyError for an unknown table."""
    return _TABLE.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}{match[3]}", text)


def _columns() -> str:
    modes = tuple(NumericTypes)
    rows = []
    for text in _SCHEMAS:
        schema = json.loads(text)
        rows.append([code(text), *(code(describe_type(column_type(schema, mode))) for mode in modes)])
    for name in WELL_KNOWN:
        schema = {"$ref": f"WellKnownTypes.json#/definitions/{name}"}
        rows.append([f"`$ref` … `{name}`", *(code(describe_type(column_type(schema, mode))) for mode in modes)])
    return table(["JSON schema", *(f"`{mode.value}`" for mode in modes)], rows)


def _meaning(type_: ColumnType) -> str:
    match type_:
        case Decimal(precision=precision, scale=0):
            return f"An exact integer of at most {precision} digits."
        case Decimal(precision=precision, scale=scale):
            return f"An exact number of at most {precision} digits, {scale} of them after the point."
        case Timestamp(zoned=zoned):
            return "A timestamp in UTC, in microseconds." if zoned else "A local date and time, in microseconds."
    return (type(type_).__doc__ or "").splitlines()[0]


def _systems() -> str:
    def row(type_: ColumnType) -> list[str]:
        ids = itertools.count(1)
        parquet, iceberg = str(arrow_type(type_)), str(iceberg_type(type_, lambda: next(ids)))
        return [code(describe_type(type_)), _meaning(type_), code(parquet), code(iceberg), code(glue_type(type_))]

    return table(["column type", "holds", "Parquet (Arrow)", "Iceberg", "Glue"], map(row, EXAMPLE_TYPES))


def _coerced(text: str, type_: ColumnType, floats: Floats = Floats.ANY) -> tuple[Value, list[ValueChange]]:
    changes: list[ValueChange] = []
    return rules_for(type_, floats).coerce(text.encode(), changes), changes


def _values() -> str:
    rows = []
    for type_, texts in _VALUES:
        for text in texts:
            value, changes = _coerced(text, type_)
            noted = ", ".join(f"{c.change} {c.reason}" + (f" at `{c.field}`" if c.field else "") for c in changes)
            if not changes and _coerced(text, type_, Floats.FINITE)[1]:
                noted = "in JSON Lines: null, NULLED DESTINATION_SERIALIZATION_ERROR"
            rows.append([code(describe_type(type_)), code(text), code(_shown(type_, value)), noted])
    return table(["column", "sent", "stored", "in `_airbyte_meta.changes`"], rows)


def _names() -> str:
    def row(name: str) -> list[str]:
        default, divided, kept = (naming.identifier(name) for naming in (SNAKE_CASE, SNAKE_CASE_NUMBERS, PRESERVE))
        inherited = AWS_DATALAKE.identifier(name)
        return [
            *map(code, (name, default)),
            code(divided) if divided != default else "",
            *map(code, (kept, inherited)),
        ]

    return table(["source", "`snake_case`", "with `split_numbers`", "`preserve`", "`aws_datalake`"], map(row, _NAMES))


def _collisions() -> str:
    pairs = zip(_COLLIDING, SNAKE_CASE.identifiers(_COLLIDING), strict=True)
    return table(["fields of one record", "columns"], [[code(source), code(name)] for source, name in pairs])


def _widenings() -> str:
    return table(["from", "to"], [[code(describe_type(a)), code(describe_type(b))] for a, b in WIDER.items()])


def _type_changes() -> str:
    """What becomes of a column, by the table's type (rows) and the stream's (columns)."""
    types = [type_ for type_ in EXAMPLE_TYPES if not isinstance(type_, Struct | List)]
    header = ["table \\ stream", *(code(describe_type(type_)) for type_ in types)]
    return table(
        header, [[code(describe_type(existing)), *(_change(existing, sent) for sent in types)] for existing in types]
    )


def _change(table: ColumnType, stream: ColumnType) -> str:
    evolution = evolve({"x": table}, [Field("x", "x", stream)])
    match evolution.changes:
        case ():
            return "same" if stream == table else "fits"
        case (Widen(type=type_),):
            return f"→ {describe_type(type_)}"
        case (AddColumn(field=field),):
            return code(field.name)
    raise AssertionError(evolution)


def _suffixes() -> str:
    suffixes = {type(type_).__name__: redirect_suffix(type_) for type_ in EXAMPLE_TYPES}
    rows = [[code(f"<name>__{suffix}"), name] for name, suffix in suffixes.items()]
    return table(["column", "for values of type"], rows)


TABLES: Mapping[str, Callable[[], str]] = {
    "columns": _columns,
    "systems": _systems,
    "values": _values,
    "names": _names,
    "collisions": _collisions,
    "widenings": _widenings,
    "type_changes": _type_changes,
    "suffixes": _suffixes,
    "inherited": inherited,
    "airbyte_types": airbyte_types,
    "check_steps": check_steps,
    "iam_actions": permissions.actions,
    "iam_policy": permissions.policy,
    "iam_statements": permissions.governed_statements,
    **{f"layout_{name}": partial(layouts.tree, name) for name in layouts.TREES},
    "layout_units": layouts.units,
    "permitted_transforms": layouts.permitted_transforms,
    "layout_keys": layouts.hive_keys,
    "layout_levels": layouts.table_levels,
    "layout_projections": layouts.projections,
    "layout_variables": layouts.template_variables,
    "licences": licences,
    "nested": nested,
    "promises": promises,
    "sync_modes": sync_modes,
    "versions": versions,
    "writer_commands": permissions.writer_commands,
    "writer_grants": permissions.writer_grants,
}


def _shown(type_: ColumnType, value: object) -> str:
    match type_, value:
        case _, None:
            return "null"
        case Date(), int():
            return str(_EPOCH.date() + timedelta(days=value))
        case Timestamp(zoned=zoned), int():
            return f"{_EPOCH + timedelta(microseconds=value)}{' UTC' if zoned else ''}"
        case Decimal() | String() | Json(), _:
            return str(value)
    return json.dumps(value)
