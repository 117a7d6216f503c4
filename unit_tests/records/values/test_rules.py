"""Texts at the edges of every type: in a block, whatever stands beside them, they are what they are alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.record import record_coercer
from destination_datalake.records.values.rules import Floats
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.types import (
    Boolean,
    ColumnType,
    Date,
    Decimal,
    Field,
    Float64,
    Int64,
    Json,
    List,
    String,
    Struct,
    Timestamp,
)
from unit_tests.examples import examples

pytestmark = pytest.mark.share(4)

NUMBERS = [
    "-0", "-0.0", "0e5", "-0e-5", "1e0", "1E+2", "12e-1", "120e-1", "1e18", "1e19", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "9007199254740993", "1e308", "1e309",
    "5e-324", "2e-324", "1e-400", "0.1", "0.1e1", "1" + "0" * 400, "0." + "0" * 400 + "1", "1.000000000000000000000001",
]  # fmt: skip
NUMBER_LIKE = [
    "+1", "007", "-007", ".5", "5.", "-.5", "", " 1", "1 ", "\\t1", "1_000", "1,000", "0x1F", "1d", "1f", "1L", "--1",
    "+-1", "١٢٣", "１２", "²",
    "NaN", "nan", "Infinity", "-Infinity", "+Infinity", "inf", "1e", "e1", ".", "-", "1\\u0030",
]  # fmt: skip
MOMENTS = [
    "2024-02-29", "2023-02-29", "1582-10-10", "1500-02-29", "0001-01-01", "0000-01-01", "-0001-01-01", "9999-12-31",
    "10000-01-01", "2024-2-9", "2024/02/29", "20240229", "2024-060", "2024-W09-4", "２０２４-02-29", "٢٠٢٤-02-29",
    "2024-02-29T23:59:60Z", "2024-02-29T24:00:00Z", "2024-02-29T23:59:59.9999999Z", "2024-02-29T12:00:00,5Z",
    "2024-02-29T12:00:00-00:00", "2024-02-29T12:00:00+00", "2024-02-29T12:00:00+0530", "2024-02-29T12:00:00+24:00",
    "2024-02-29T12:00:00+14:30", "2024-02-29t12:00:00z", "2024-02-29 12:00", "2024-02-29T12", "2024-02-29 12:00:00 UTC",
    "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "2024-02-29T12:00:00.000000000Z", "2024-02-29T12:00:00.",
    " 2024-02-29", "2024-02-29 ", "2024-02-29T", "2024-02-29Z", "1969-12-31T23:59:59.999999Z", "24-02-29",
]  # fmt: skip
WORDS = ["true", "True", "false", "null", "None", "yes", "0", "1", "\\ud800", "\\u0000", "é", "\\n", "[]", "{}"]
LITERALS = [
    "true",
    "false",
    "null",
    "[]",
    "{}",
    "[[]]",
    '{"n":1}',
    '{"a":1,"a":2}',
    '{"n":1,"\\u006e":"2"}',
    "NaN",
    "Infinity",
]
TEXTS = [*NUMBERS, *LITERALS, *(f'"{text}"' for text in [*NUMBERS, *NUMBER_LIKE, *MOMENTS, *WORDS])]
TYPES = [
    Boolean(), Int64(), Float64(), Decimal(38, 18), Decimal(5, 0), String(), Json(), Date(),
    Timestamp(zoned=True), Timestamp(zoned=False),
]  # fmt: skip
SHAPES = ["alone", "list", "struct", "open struct"]


def shaped(type_: ColumnType, shape: str) -> tuple[ColumnType, str]:
    """The type inside another, and what stands around its text."""
    return {
        "alone": (type_, "%s"),
        "list": (List(type_), "[%s]"),
        "struct": (Struct((Field("n", "n", type_),)), '{"n":%s}'),
        "open struct": (Struct((Field("n", "n", type_), Field("o", "o", Json()))), '{"n":%s,"o":[]}'),
    }[shape]


def line(number: int, text: str) -> bytes:
    return f'{{"record":{{"data":{{"a":{text}}},"emitted_at":{1_700_000_000_000 + number}}}}}'.encode()


def in_a_block(lines: list[bytes], column: Field, floats: Floats) -> list[tuple[int, str, list[Any]]]:
    """When each row was emitted, its value, and its changes."""
    rows = []
    for part in BlockDecoder([column], floats).decode(b"".join(line + b"\n" for line in lines)):
        values: Any = part.columns[0].to_pylist()
        changes: Any = [[]] * part.rows if part.changes is None else part.changes.to_pylist()
        for at, value, noted in zip(part.extracted_at, values, changes, strict=True):
            rows.append((at.value // 1000, repr(value), [[*change.values()] for change in noted]))
    return sorted(rows)


def alone(lines: list[bytes], column: Field, floats: Floats) -> list[tuple[int, str, list[Any]]]:
    coerce = record_coercer([column], floats)
    read = [coerce(line) for line in lines]
    values: Any = pa.array([record.values[0] for record in read], arrow_type(widest(column.type)))
    return [
        (record.emitted_at, repr(value), [[change.field, change.change, change.reason] for change in record.changes])
        for record, value in zip(read, values.to_pylist(), strict=True)
    ]


@pytest.mark.share(12)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_block_and_coercer_agree_on_a_text(type_: ColumnType, shape: str) -> None:
    outer, around = shaped(type_, shape)
    column = Field("a", "a", outer)
    for text in TEXTS:
        lines = [line(0, around % text)]
        assert in_a_block(lines, column, Floats.ANY) == alone(lines, column, Floats.ANY), text


@pytest.mark.law
@settings(max_examples=examples(1000))
@given(
    st.lists(st.sampled_from(TEXTS), min_size=2, max_size=12),
    st.sampled_from(TYPES),
    st.sampled_from(SHAPES),
    st.sampled_from(Floats),
)
def test_texts_in_one_block_are_read_as_each_is_by_the_coercer(
    texts: list[str], type_: ColumnType, shape: str, floats: Floats
) -> None:
    outer, around = shaped(type_, shape)
    column = Field("a", "a", outer)
    lines = [line(number, around % text) for number, text in enumerate(texts)]

    assert in_a_block(lines, column, floats) == alone(lines, column, floats)
