"""Numbers with far exponents: in a block they are what the careful rule makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.schema.types import ColumnType, Decimal, Field, Float64, Int64, Json, List, Struct
from unit_tests.examples import examples
from unit_tests.records.values.coercion import coerce_value

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

    decoded: dict[int, tuple[Any, int]] = {}
    for part in BlockDecoder([Field("a", "a", outer)]).decode("".join(lines).encode()):
        changes: Any = [[]] * part.rows if part.changes is None else part.changes.to_pylist()
        values: Any = part.columns[0].to_pylist()
        for at, value, noted in zip(part.extracted_at, values, changes, strict=True):
            inner = value[0] if isinstance(value, list) else value["n"] if isinstance(value, dict) else value
            decoded[at.value // 1_000_000] = (inner, len(noted))

    assert [decoded[n] for n in range(len(texts))] == [(coerced.value, len(coerced.changes)) for coerced in alone]
