"""Lines by the values that the connector makes of them: what a source sends is found if the column would get it."""

from __future__ import annotations

import decimal
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from destination_datalake.records.record import RejectedRecord, record_coercer
from destination_datalake.records.search import RecordSearch
from destination_datalake.schema.arrow import arrow_type, widest
from destination_datalake.schema.types import (
    ColumnType,
    Decimal,
    Field,
    Float32,
    Float64,
    Int32,
    Int64,
    Json,
    String,
    Timestamp,
)
from unit_tests.examples import examples
from unit_tests.strategies import everyday_types, json_values


@dataclass(frozen=True)
class Values:
    """Some values of a column."""

    values: Any

    @classmethod
    def from_values(cls, type_: ColumnType, *values: Any) -> Values:
        return cls(pa.array(values, arrow_type(widest(type_))))

    def contains(self, values: Any, /) -> Any:
        assert not values.null_count
        assert values.type == self.values.type
        return pc.is_in(values, self.values).to_numpy(zero_copy_only=False)


def line(data: str, emitted_at: str = "1700000000000") -> bytes:
    body = f'{{"stream":"users","data":{data},"emitted_at":{emitted_at}}}'
    return f'{{"type":"RECORD","record":{body}}}'.encode("utf-8", "surrogatepass")


def matches(column: Field, chosen: Values, lines: Sequence[bytes]) -> list[bool]:
    answer: list[bool] = RecordSearch((column,), chosen).match_lines(b"".join(line + b"\n" for line in lines)).tolist()
    return answer


USER = "user_id"
DAY = datetime(2000, 12, 31, tzinfo=UTC)


@pytest.mark.parametrize(
    ("type_", "chosen", "sent", "elsewhere"),
    [
        (Int32(), 1, ("1", "1.0", '"1"', "1e0", "10E-1", '"1.0"'), ("11", '"x1"', "true", "null", "1.5", "[1]")),
        (Int64(), 2**53 + 1, ("9007199254740993", '"9007199254740993"'), ("9007199254740992",)),
        (String(), "A", ('"A"', '"\\u0041"'), ('"a"', '"AA"', '"\\\\u0041"')),
        (String(), "1", ('"1"', "1"), ("1.0", '"1.0"')),
        (String(), "é", ('"é"', '"\\u00e9"', '"\\u00E9"'), ('"e\\u0301"',)),
        (String(), 'a"b', ('"a\\"b"', '"a\\u0022b"'), ('"ab"',)),
        (Float64(), 0.5, ("0.5", "5e-1", '"0.50"', '" .5\\n"'), ("0.25",)),
        (
            Int64(),
            735,
            ("735", '" 735"', '"735 "', '"\\t735.0\\r\\n"', '"\\u0020735"'),
            ('"7 35"', '" "'),
        ),
        (Decimal(9, 2), decimal.Decimal(735), ("735", '" 735"', '"735.00 "'), ('"735.01"', '" 73 5"')),
        (Timestamp(zoned=True), DAY, ('" 2000-12-31T00:00:00Z "', '"2000-12-31T01:00:00+01:00"'), ('"2000-12-31 x"',)),
        (String(), " 735", ('" 735"', '"\\u0020735"'), ("735", '"735"', '"735 "')),
    ],
)
def test_a_value_is_found_in_every_form_that_its_column_takes(
    type_: ColumnType, chosen: Any, sent: Sequence[str], elsewhere: Sequence[str]
) -> None:
    texts = [*sent, *elsewhere]
    lines = [line(f'{{"{USER}":{text}}}') for text in texts]

    answer = matches(Field(USER, USER, type_), Values.from_values(type_, chosen), lines)

    assert dict(zip(texts, answer, strict=True)) == dict.fromkeys(sent, True) | dict.fromkeys(elsewhere, False)


def test_of_equal_keys_the_last_counts_and_escaped_ones_are_the_same() -> None:
    lines = [
        line('{"user_id":5,"user_id":7}'),
        line('{"user_id":7,"user_id":5}'),
        line('{"user\\u005fid":7}'),
        line('{"other":7}'),
    ]
    assert matches(Field(USER, USER, Int64()), Values.from_values(Int64(), 7), lines) == [True, False, True, False]


def test_a_field_of_an_object_is_found_by_its_path() -> None:
    lines = [
        line(text) for text in ('{"user":{"id":7}}', '{"id":7}', '{"user":{"id":8}}', '{"user":7}', '{"user":null}')
    ]
    column = Field("user_id", "id", Int64(), ("user",))
    assert matches(column, Values.from_values(Int64(), 7), lines) == [True, False, False, False, False]


def test_one_column_may_have_come_under_several_keys() -> None:
    text = b"".join(line(data) + b"\n" for data in ('{"userId":7}', '{"user_id":7}', '{"user_id":8}'))
    search = RecordSearch((Field(USER, "userId", Int64()), Field(USER, USER, Int64())), Values.from_values(Int64(), 7))
    assert search.match_lines(text).tolist() == [True, True, False]


DEEP = "[" * 2000 + "]" * 2000

UNREADABLE = (
    line('{"user_id":7}', "1e30"),
    line('{"user_id":7}', '"never"'),
    line(f'{{"deep":{DEEP},"user_id":7}}'),
    line('{"user_id":7,"n":NaN}'),
    line('{"user_id":7,"s":"\\ud800"}'),
    line('{"user_id":7}').replace(b"users", b"\xff"),
    b"\xef\xbb\xbf" + line('{"user_id":7}'),
    b'{"record": {"data": {"user_id": 7',
    b'nonsense "7" and more',
    b'nonsense " 7" and more',
)


@pytest.mark.parametrize("number", range(len(UNREADABLE)))
def test_a_line_that_is_no_row_is_found_all_the_same(number: int) -> None:
    odd = UNREADABLE[number]
    lines = [line('{"user_id":1}'), odd, line('{"user_id":7}'), odd.replace(b"7", b"9")]
    assert matches(Field(USER, USER, Int64()), Values.from_values(Int64(), 7), lines) == [False, True, True, False]


@pytest.mark.parametrize(
    ("type_", "chosen"),
    [(Int64(), 7), (Float32(), 7.0), (Float64(), 7.0), (Decimal(9, 2), decimal.Decimal(7)), (String(), "7")],
)
@pytest.mark.parametrize("text", ["2020-01-01", "1e5.3", "1e", "1-1", "--1", "1..1", "1E+", "-", "01"])
def test_a_line_with_an_invalid_number_is_found_by_its_other_values(type_: ColumnType, chosen: Any, text: str) -> None:
    lines = [line(f'{{"user_id":{value},"at":{text}}}') for value in (9, 7)]
    assert matches(Field(USER, USER, type_), Values.from_values(type_, chosen), lines) == [False, True]


def test_of_a_line_whose_data_can_be_read_the_other_values_do_not_count() -> None:
    lines = [line('{"user_id":1,"amount":7}', "1e30"), line('{"user":null,"amount":7}', "1e30")]
    assert matches(Field(USER, USER, Int64()), Values.from_values(Int64(), 7), lines) == [False, False]
    assert matches(Field(USER, "id", Int64(), ("user",)), Values.from_values(Int64(), 7), lines) == [False, False]


def test_many_lines_are_looked_at_by_their_numbers() -> None:
    lines = [line(f'{{"user_id":{number if number % 3 else json.dumps(str(number))}}}') for number in range(5000)]
    answer = matches(Field(USER, USER, Int64()), Values.from_values(Int64(), *range(0, 5000, 7)), lines)
    assert np.flatnonzero(answer).tolist() == [*range(0, 5000, 7)]


_SPELLINGS = st.sampled_from(
    ("1", "1.0", '"1"', "1e0", "1.00E+0", '"\\u0031"', "01", '"2"', "2", "null", "true", "[1]")
)


@settings(max_examples=examples(400))
@given(
    everyday_types,
    st.lists(json_values.map(json.dumps) | _SPELLINGS, min_size=1, max_size=8),
    st.sampled_from(("1700000000000", "1e30", '"x"')),
    st.data(),
)
def test_a_line_is_found_if_its_column_gets_a_chosen_value(
    type_: ColumnType, texts: Sequence[str], emitted_at: str, data: st.DataObject
) -> None:
    """The law: what the careful rule makes of a line alone decides, whatever the line is sent beside."""
    column = Field("value", "Value", type_)
    lines = [line(f'{{"Value":{text}}}', emitted_at if number == 0 else "0") for number, text in enumerate(texts)]
    coerce = record_coercer([column])
    made = []
    for raw_line in lines:
        try:
            made.append(coerce(raw_line.replace(emitted_at.encode(), b"0")).values[0])
        except RejectedRecord:
            made.append(None)
    values: Any = pa.array(made, arrow_type(widest(type_)))
    if pa.types.is_nested(values.type):
        return  # A column of objects or lists has no ids.
    chosen = Values(values.filter(pa.array(data.draw(st.lists(st.booleans(), min_size=len(made), max_size=len(made))))))

    answer = matches(column, Values(chosen.values.drop_null()), lines)

    wanted = pc.and_(pc.is_valid(values), pc.is_in(values, chosen.values)).to_pylist()
    valid = [json_is_valid(text) for text in texts]
    assert [a for a, v in zip(answer, valid, strict=True) if v] == [w for w, v in zip(wanted, valid, strict=True) if v]


def json_is_valid(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("type_", [Decimal(20, 2), Timestamp(zoned=True), Json()])
def test_nothing_is_found_of_no_values(type_: ColumnType) -> None:
    lines = [line('{"user_id":1}'), line("{}"), line('{"user_id":{"a":1}}')]
    assert matches(Field(USER, USER, type_), Values.from_values(type_), lines) == [False, False, False]
