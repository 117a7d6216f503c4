"""Rows lie in the partitions to which Spark with Iceberg assigns them."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from destination_datalake.partitioning.spec import parse_transform
from destination_datalake.partitioning.transforms import transformed
from integration_tests.engines.engine import Engine
from integration_tests.engines.serve import in_iceberg_terms

_NUMBERS = ("bucket[16]", "bucket[1000]", "truncate[10]", "truncate[7]")
_TEXTS = ("bucket[16]", "truncate[1]", "truncate[3]")
_TIMES = ("year", "month", "day", "hour", "bucket[16]")

TYPES: Mapping[str, tuple[pa.DataType, tuple[str, ...]]] = {
    "boolean": (pa.bool_(), ("identity",)),
    "int": (pa.int32(), ("identity", *_NUMBERS, "truncate[999999999]")),
    "bigint": (pa.int64(), ("identity", *_NUMBERS)),
    "float": (pa.float32(), ("identity",)),
    "double": (pa.float64(), ("identity",)),
    "decimal(9,2)": (pa.decimal128(9, 2), ("identity", *_NUMBERS)),
    "decimal(38,18)": (pa.decimal128(38, 18), ("identity", *_NUMBERS)),
    "string": (pa.string(), ("identity", *_TEXTS)),
    "binary": (pa.binary(), ("identity", *_TEXTS)),
    "date": (pa.date32(), ("identity", *(transform for transform in _TIMES if transform != "hour"))),
    "timestamp": (pa.timestamp("us", "UTC"), ("identity", *_TIMES)),
    "timestamp_ntz": (pa.timestamp("us"), ("identity", *_TIMES)),
}

_EDGES: Mapping[str, list[Any]] = {
    "boolean": [True, False],
    "int": [0, -1, 9, -10, -11, 34, 2**31 - 1, -(2**31)],
    "bigint": [0, -1, 9, -10, -11, 34, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, 0.5, -1.5, float("inf"), float("nan")],
    "double": [0.0, -0.0, 0.1, -1e300, float("-inf"), float("nan")],
    "decimal(9,2)": [
        Decimal(text) for text in ("0", "-0.01", "14.20", "1.28", "-1.28", "-1.29", "-327.68", "9999999.99")
    ],
    "decimal(38,18)": [
        Decimal(text) for text in ("0", "-1e-18", "12345678901234567890.123456789012345678", "-1", f"{10**38 - 1}e-18")
    ],
    "string": ["", " ", "iceberg", "a/b=c%20 +d", "null", "é", "e\u0301", "日本語", "🧊🧊", "x" * 100, "\n"],
    "binary": [b"", b"\x00", b"\xff\xfe\xfd\xfc", b"\x00\x01\x02\x03"],
    "date": [
        dt.date(1, 1, 1),
        dt.date(1969, 12, 31),
        dt.date(1970, 1, 1),
        dt.date(2024, 2, 29),
        dt.date(1600, 2, 29),
        dt.date(9999, 12, 31),
    ],
    "timestamp": [
        dt.datetime.fromisoformat(f"{text}+00:00")
        for text in (
            "1969-12-31T23:59:59.999999",
            "1970-01-01T00:00:00",
            "2017-11-16T22:31:08.000001",
            "2024-02-29T12:00:00",
            "1890-01-01T00:00:00",
            "0001-01-02T00:00:00",
            "9999-12-31T23:59:59.999999",
        )
    ],
}

_RANDOM: Mapping[str, Callable[[random.Random], Any]] = {
    "int": lambda chance: chance.randrange(-(2**31), 2**31) >> chance.randrange(31),
    "bigint": lambda chance: chance.randrange(-(2**63), 2**63) >> chance.randrange(63),
    "decimal(9,2)": lambda chance: Decimal(chance.randrange(-(10**8), 10**8)).scaleb(-2),
    "decimal(38,18)": lambda chance: Decimal(f"{chance.randrange(-(10**37), 10**37) >> chance.randrange(120)}e-18"),
    "string": lambda chance: "".join(chance.choices("ab ü語🧊", k=chance.randrange(12))),
    "binary": lambda chance: chance.randbytes(chance.randrange(12)),
    "date": lambda chance: dt.date.fromordinal(chance.randrange(577_736, 3_652_059)),
    "timestamp": lambda chance: dt.datetime.fromtimestamp(chance.randrange(-(10**10), 10**11), dt.UTC),
}


def name_of(column_type: str) -> str:
    return column_type.removesuffix("_ntz")


def edges(column_type: str) -> list[Any]:
    return [None, *(in_zone(value, column_type) for value in _EDGES[name_of(column_type)])]


def in_zone(value: Any, column_type: str) -> Any:
    return value.replace(tzinfo=None) if column_type == "timestamp_ntz" else value


def ours(values: list[Any], column_type: str, transform: str) -> list[Any]:
    """Return the connector's values, as JSON brings Spark's."""
    transformed_values = transformed(pa.array(values, TYPES[column_type][0]), parse_transform(transform)).to_pylist()
    return json.loads(json.dumps(transformed_values, default=in_iceberg_terms))  # type: ignore[no-any-return]


def written(folder: Path, columns: Mapping[str, list[Any]], column_type: str) -> str:
    """Write a Parquet file with an id and these columns; return it as Spark's SQL names it."""
    path = folder / "values.parquet"
    arrays = {name: pa.array(values, TYPES[column_type][0]) for name, values in columns.items()}
    rows = len(next(iter(columns.values())))
    pq.write_table(pa.table({"id": pa.array(range(rows), pa.int64()), **arrays}), path)
    return f"parquet.`{path}`"


@pytest.mark.parametrize("column_type", TYPES)
def test_partitions_of_a_table_are_those_of_spark(engine: Engine, tmp_path: Path, column_type: str) -> None:
    transforms = TYPES[column_type][1]
    values = edges(column_type)
    # A column for each transform: Spark refuses two time units of one column.
    columns = {f"x{number}": values for number in range(len(transforms))}
    declared = ", ".join(f"{name} {column_type}" for name in columns)
    fields = ", ".join(clause(transform, name) for transform, name in zip(transforms, columns, strict=True))
    table = f"local.db.{name_of(column_type).partition('(')[0]}{len(fields)}{abs(hash(column_type))}"

    engine.sql(f"CREATE TABLE {table} (id bigint, {declared}) USING iceberg PARTITIONED BY ({fields})")
    engine.sql(f"INSERT INTO {table} SELECT * FROM {written(tmp_path, columns, column_type)}")

    rows = engine.sql(f"SELECT id, _partition AS partition FROM {table} ORDER BY id").rows
    spark = [list(row["partition"].values()) for row in rows]
    connector = [ours(values, column_type, transform) for transform in transforms]
    assert repr(spark) == repr([list(row) for row in zip(*connector, strict=True)])
    partitions = engine.sql(f"SELECT partition FROM {table}.partitions").rows
    assert {repr(list(row["partition"].values())) for row in partitions} == {repr(row) for row in spark}


def clause(transform: str, column: str) -> str:
    """Return a transform as Spark's DDL has it."""
    name, _, size = transform.rstrip("]").partition("[")
    if name == "identity":
        return column
    return f"{name}({size}, {column})" if size else f"{name}s({column})"


@pytest.mark.parametrize("column_type", [name for name in TYPES if name_of(name) in _RANDOM])
def test_transforms_of_many_values_are_those_of_spark(engine: Engine, tmp_path: Path, column_type: str) -> None:
    chance = random.Random(column_type)
    transforms = [transform for transform in TYPES[column_type][1] if transform != "identity"]
    values = edges(column_type)
    values += [in_zone(_RANDOM[name_of(column_type)](chance), column_type) for _ in range(3000)]
    functions = ", ".join(
        f"local.system.{clause(transform, 'x')} AS t{number}" for number, transform in enumerate(transforms)
    )

    source = written(tmp_path, {"x": values}, column_type)
    rows = engine.sql(f"SELECT id, {functions} FROM {source} ORDER BY id").rows

    for number, transform in enumerate(transforms):
        assert [row[f"t{number}"] for row in rows] == ours(values, column_type, transform), transform
