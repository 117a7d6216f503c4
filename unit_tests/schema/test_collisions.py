"""Which fields' names meet, as people are told."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from destination_datalake.schema.collisions import collisions
from destination_datalake.schema.columns import stream_columns
from destination_datalake.schema.names import PRESERVE, SNAKE_CASE, Naming
from destination_datalake.schema.types import NumericTypes

NUMBER = {"type": "number"}


def told(properties: Mapping[str, object], naming: Naming = SNAKE_CASE) -> list[str]:
    columns = stream_columns({"properties": properties}, NumericTypes.INT_FLOAT, naming)
    return [str(collision) for collision in collisions(columns, naming)]


def object_of(*fields: str) -> Mapping[str, object]:
    return {"type": "object", "properties": dict.fromkeys(fields, NUMBER)}


@pytest.mark.parametrize(
    ("naming", "properties", "expected"),
    [
        (SNAKE_CASE, {"id": NUMBER, "createdAt": NUMBER}, []),
        (
            SNAKE_CASE,
            {"a_b": NUMBER, "id": NUMBER, "aB": NUMBER, "a b": NUMBER},
            ["'a_b' is a_b, 'aB' is a_b_#, 'a b' is a_b_#"],
        ),
        (PRESERVE, {"a_b": NUMBER, "aB": NUMBER, "a b": NUMBER}, ["'a_b' is a_b, 'a b' is a_b_#"]),
        (SNAKE_CASE, {"aB": NUMBER, "a-b": NUMBER}, ["'aB' is a_b_#, 'a-b' is a_b_#"]),
        (SNAKE_CASE, {"_airbyteMeta": NUMBER}, ["'_airbyteMeta' is _airbyte_meta_#"]),
        (SNAKE_CASE, {"_airbyte_meta": NUMBER}, []),
        (SNAKE_CASE, {"_file": NUMBER}, ["'_file' is _file_#"]),
        (
            SNAKE_CASE,
            {"The Customer": object_of("aB", "a_b"), "lines": {"type": "array", "items": object_of("x y", "xY")}},
            [
                "in 'The Customer' 'aB' is a_b_#, 'a_b' is a_b",
                "in 'lines' 'x y' is x_y_#, 'xY' is x_y_#",
            ],
        ),
        (PRESERVE, {"1a": NUMBER, "_1a": NUMBER, "o": object_of("1a", "_1a")}, ["in 'o' '1a' is _1a_#, '_1a' is _1a"]),
    ],
)
def test_fields_that_meet_are_told_with_their_columns(
    naming: Naming, properties: Mapping[str, object], expected: list[str]
) -> None:
    assert [re.sub("_[0-9a-f]{8}", "_#", text) for text in told(properties, naming)] == expected
