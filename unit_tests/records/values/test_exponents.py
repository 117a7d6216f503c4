"""Far exponents: found before Arrow parses decimals, so that every value is what the careful rule makes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.values.numbers import far_exponent
from destination_datalake.schema.types import ColumnType, Decimal, Field, Float64, Int64, Json, List, Struct
from unit_tests.examples import examples
from unit_tests.records.values.coercion import coerce_value

FAR = ["1e-39", "1E-99", "-1.5e100", "1e+100", "0e-500", "1e-10000000", "1000000000000000000e-232", "1.e999"]
NEAR = ["1e-38", "1e99", "1e-07", "1.5E+16", "12e4", "100", "0.1"]
NO_NUMBERS = [
    '"123e4567-e89b-12d3-a456-426614174000"',
    '"9f1e500"',
    '"1e500x"',
    '"x 1e50"',
    "null",
    r'"caf\u00e9 \u3000"',
    r'"C:\\user"',
]


@pytest.mark.parametrize("ending", ["\n", ",", "]", "}", " ", '"'])
@pytest.mark.parametrize("number", FAR)
def test_a_number_with_a_far_exponent_is_found(number: str, ending: str) -> None:
    start = '"' if ending == '"' else ":"

    assert far_exponent(f'{{"a"{start}{number}{ending}   \n'.encode())


@pytest.mark.parametrize("text", [r'"1\u0065-10000"', r'"\u0031e-10000"', r'"1e\u002d10000"', r'"1e-\u0031000"'])
def test_a_number_whose_characters_are_escaped_is_found(text: str) -> None:
    assert far_exponent(f'{{"a":{text}}}\n'.encode())


@pytest.mark.parametrize("text", [*NEAR, *NO_NUMBERS])
def test_near_exponents_and_texts_like_numbers_are_not_found(text: str) -> None:
    assert not far_exponent(f'{{"a":{text}}}\n'.encode())


@pytest.mark.parametrize("before", range(65_520, 65_545))
def test_a_far_exponent_is_found_anywhere_in_a_block(before: int) -> None:
    assert far_exponent(b'"' + b"x" * before + b'":1e-232}\n')
    assert not far_exponent(b'"' + b"x" * before + b'":1e-23 }\n')


@pytest.mark.parametrize("text", [b"", b"\n", b"1e", b"{}\n", b"1e10"])
def test_a_text_shorter_than_an_exponent_has_none(text: bytes) -> None:
    assert not far_exponent(text)


digits = st.integers(0, 10**40).map(str) | st.integers(0, 40).map(lambda zeros: "1" + "0" * zeros)
fractions = st.just("") | digits.map(lambda text: f".{text}")
exponents = st.just("") | st.integers(-400, 400).map(lambda power: f"e{power}") | st.just("E-10000000")
numbers = st.tuples(st.sampled_from(["", "-"]), digits, fractions, exponents).map("".join)


@pytest.mark.law
@settings(max_examples=examples(2000))
@given(
    numbers=st.lists(numbers, min_size=1, max_size=3),
    as_text=st.booleans(),
    column_type=st.sampled_from([Decimal(38, 18), Decimal(38, 0), Decimal(38, 38), Decimal(9, 2), Float64(), Int64()]),
    nested=st.sampled_from(["", "list", "struct", "open struct"]),
)
@example(["1e-10000000"], False, Decimal(38, 18), "")
@example(["1000000000000000000e-232"], False, Decimal(38, 18), "")
@example(["1e-10000000"], True, Decimal(38, 18), "open struct")
def test_numbers_of_every_size_are_read_in_a_block_as_they_are_alone(
    numbers: list[str], as_text: bool, column_type: ColumnType, nested: str
) -> None:
    texts = [f'"{number}"' if as_text else number for number in numbers]
    alone = [coerce_value(text.encode(), column_type) for text in texts]
    outer, sent = {
        "": (column_type, "{}"),
        "list": (List(column_type), "[{}]"),
        "struct": (Struct((Field("n", "n", column_type),)), '{{"n":{}}}'),
        "open struct": (Struct((Field("n", "n", column_type), Field("o", "o", Json()))), '{{"n":{}}}'),
    }[nested]
    lines = [f'{{"record":{{"data":{{"a":{sent.format(text)}}},"emitted_at":{n}}}}}\n' for n, text in enumerate(texts)]

    found: dict[int, tuple[Any, int]] = {}
    for part in BlockDecoder([Field("a", "a", outer)]).decode("".join(lines).encode()):
        changes: Any = [[]] * part.rows if part.changes is None else part.changes.to_pylist()
        values: Any = part.columns[0].to_pylist()
        for at, value, noted in zip(part.extracted_at, values, changes, strict=True):
            inner = value[0] if isinstance(value, list) else value["n"] if isinstance(value, dict) else value
            found[at.value // 1_000_000] = (inner, len(noted))

    assert [found[n] for n in range(len(texts))] == [(each.value, len(each.changes)) for each in alone]
