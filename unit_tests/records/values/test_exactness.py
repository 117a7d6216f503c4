"""Every value lands exactly as it was sent, or its row says what became of it and a reject keeps what was sent.

Laws over random columns and records.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.record import record_coercer
from destination_datalake.records.values.rules import Floats
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.types import (
    ColumnType,
    Date,
    Field,
    Float64,
    Int64,
    List,
    Struct,
    Timestamp,
)
from unit_tests.examples import examples
from unit_tests.records.oracle import Oracle, a_line, as_dict, exactly, few_columns
from unit_tests.records.values.coercion import coerce_value
from unit_tests.strategies import EXAMPLE_TYPES, column_types, decimals, json_texts, strange_texts

pytestmark = pytest.mark.share(4)

EPOCH = datetime(1970, 1, 1)
A = Field("a", "a", Float64())


def as_python(value: Any, type_: ColumnType) -> Any:
    """What the careful rule keeps, in Python's own terms."""
    match type_, value:
        case _, None:
            return None
        case Date(), _:
            return EPOCH.date() + timedelta(days=value)
        case Timestamp(zoned=zoned), _:
            instant = EPOCH + timedelta(microseconds=value)
            return instant.replace(tzinfo=UTC) if zoned else instant
        case Struct(fields), _:
            return {f.name: as_python(value[f.name], f.type) for f in fields}
        case List(element), _:
            return [as_python(item, element) for item in value]
    return value


def sent_to(types: st.SearchStrategy[ColumnType]) -> st.SearchStrategy[tuple[ColumnType, str]]:
    """A column's type and a JSON text for it."""
    return types.flatmap(lambda column_type: st.tuples(st.just(column_type), json_texts(column_type)))


@pytest.mark.law
@settings(max_examples=examples(10_000))
@given(sent_to(st.sampled_from(EXAMPLE_TYPES)) | sent_to(decimals), st.sampled_from(Floats))
def test_a_value_is_kept_exactly_or_its_change_is_noted(sent: tuple[ColumnType, str], floats: Floats) -> None:
    kept_or_on_record(*sent, floats)


@given(sent_to(column_types), st.sampled_from(Floats))
def test_a_nested_value_is_kept_exactly_or_its_change_is_noted(sent: tuple[ColumnType, str], floats: Floats) -> None:
    kept_or_on_record(*sent, floats)


def kept_or_on_record(column_type: ColumnType, text: str, floats: Floats) -> None:
    value, changes = coerce_value(text.encode(), column_type, floats)

    oracle = Oracle(changes, floats)
    assert oracle.holds(exactly(text), as_python(value, column_type), column_type, "")


# --- What a number becomes

PROMISE = (
    "A `number` becomes the nearest IEEE 754 double, as in JSON parsers. A double that was sent with 17 significant "
    "digits keeps its value. Integers are exact. With `numeric_types: decimal`, numbers are exact too. A number beyond "
    "the range of a double becomes null, with an entry in `_airbyte_meta.changes` and a reject. A number whose "
    "absolute value is below the smallest double becomes zero."
)

_digits = st.integers(0, 10**25).map(str)
_powers = st.just("") | st.integers(-345, 330).map(lambda power: f"e{power}")
number_texts = st.builds(
    lambda sign, whole, fraction, power: f"{sign}{whole}{fraction}{power}",
    st.sampled_from(["", "-"]),
    _digits,
    st.just("") | _digits.map(lambda text: f".{text}"),
    _powers,
)


@pytest.mark.parametrize("page", ["docs/schema/types.md", "docs/code/invariants.md"])
def test_the_promise_for_numbers_is_the_same_on_every_page(page: str) -> None:
    assert PROMISE in " ".join((Path(__file__).parents[3] / page).read_text().split())


@pytest.mark.law
@settings(max_examples=examples(2000))
@given(number_texts, st.booleans())
@example("9007199254740993", False)
@example("1e-400", False)
@example("-2.4703282292062327e-324", True)
@example("1.7976931348623158e308", False)
@example("1.7976931348623159e308", False)
def test_a_number_becomes_the_nearest_double(text: str, quoted: bool) -> None:
    sent, raw = Fraction(text), f'"{text}"' if quoted else text

    value, changes = coerce_value(raw.encode(), Float64())
    [column] = [part.columns[0] for part in BlockDecoder([A]).decode(a_line({"a": raw}, 1))]

    assert column.to_pylist() == [value]
    if value is None:
        assert abs(sent) > Fraction(sys.float_info.max)
        assert [(change.change, change.reason) for change in changes] == [
            ("NULLED", "DESTINATION_FIELD_SIZE_LIMITATION")
        ]
        return
    assert isinstance(value, float)
    assert math.copysign(1, value) == (-1 if text.startswith("-") else 1)
    below, above = math.nextafter(value, -math.inf), math.nextafter(value, math.inf)
    assert all(
        abs(sent - Fraction(value)) <= abs(sent - Fraction(neighbour))
        for neighbour in (below, above)
        if math.isfinite(neighbour)
    )
    assert not changes


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_17_significant_digits_round_trip(number: float) -> None:
    text = f"{number:.16e}"

    value, _ = coerce_value(text.encode(), Float64())

    assert isinstance(value, float)
    assert f"{value:.16e}" == text


@pytest.mark.law
@settings(max_examples=examples(1000))
@given(st.integers(-(10**25), 10**25), st.sampled_from(["", ".0", "e0", ".000e1"]), st.booleans())
def test_integer_is_exact_or_null(number: int, form: str, quoted: bool) -> None:
    raw = f'"{number}{form}"' if quoted else f"{number}{form}"
    sent = number * 10 if form.endswith("e1") else number

    value, changes = coerce_value(raw.encode(), Int64())
    [column] = [part.columns[0] for part in BlockDecoder([replace(A, type=Int64())]).decode(a_line({"a": raw}, 1))]

    assert column.to_pylist() == [value]
    assert (value, len(changes)) == ((sent, 0) if -(2**63) <= sent < 2**63 else (None, 1))


# --- However it is read

odd_envelopes = st.sampled_from(
    [
        ("1700000000", ""),
        ("1700000000.5", ""),
        ("1.7e12", ""),
        (None, ',"meta":null'),
        (None, ',"meta":{"changes":[null]}'),
        (None, ',"meta":{"changes":[{"field":"C 0","change":"NULLED","reason":"SOURCE_RETRIEVAL_ERROR"}]}'),
        (None, ',"meta":{"changes":[{"field":"C 0","change":"NULLED","reason":"DESTINATION_TYPECAST_ERROR"}]}'),
        (None, ',"meta":{"changes":[{"field":5}]}'),
        (None, ',"undeclared":"\\udc00"'),
    ]
)
envelopes = st.one_of(st.just((None, "")), st.just((None, "")), st.just((None, "")), odd_envelopes)


@pytest.mark.law
@settings(max_examples=examples(1000))
@given(st.data(), few_columns)
def test_a_decoder_reads_block_after_block_as_each_record_is_read_alone(
    data: st.DataObject, columns: list[Field]
) -> None:
    # Given a decoder that learns from each block, and blocks of which some hold only what sources usually send
    decoder, coerce = BlockDecoder(columns), record_coercer(columns)
    record = st.tuples(
        st.fixed_dictionaries({}, optional={column.source: strange_texts(column.type) for column in columns}), envelopes
    )
    blocks = data.draw(st.lists(st.lists(record, min_size=1, max_size=6), min_size=1, max_size=3))
    for block in blocks:
        lines = [a_line(values, n, at, suffix) for n, (values, (at, suffix)) in enumerate(block)]
        # When
        decoded = list(decoder.decode(b"".join(lines)))
        # Then
        alone = [coerce(line.rstrip(b"\n")) for line in lines]
        wanted = [
            [at * 1000 for at, _, _, _ in alone],
            *(pylist([row.values[i] for row in alone], c.type) for i, c in enumerate(columns)),
            [[as_dict(change) for change in row.changes] for row in alone],
        ]
        actual: list[list[Any]] = [[] for _ in wanted]
        for part in decoded:
            changes = part.changes.to_pylist() if part.changes is not None else [[]] * part.rows
            at: Any = part.extracted_at.cast(pa.int64())
            parts = [at.to_pylist(), *(c.to_pylist() for c in part.columns), changes]
            for column, values in zip(actual, parts, strict=True):
                column += values
        assert sorted(map(repr, zip(*actual, strict=True))) == sorted(map(repr, zip(*wanted, strict=True)))
        # And a changed row has the line it came in, and the texts of the values that were changed
        noted = [
            (part.lines[row], change.field, change.original)
            for part in decoded
            for row, row_changes in part.changed.items()
            for change in row_changes
        ]
        assert sorted(noted) == sorted(
            (line.rstrip(b"\n"), change.field, change.original)
            for line, row in zip(lines, alone, strict=True)
            for change in row.changes[row.reported :]
        )


def pylist(values: Sequence[Any], type_: ColumnType) -> list[Any]:
    """The values as Arrow gives them back."""
    array: Any = pa.array(values, arrow_type(widest(type_)))
    return list(array.to_pylist())
