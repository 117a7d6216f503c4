"""Records of streams that declare no properties: their data are one column of JSON text, byte for byte."""

from __future__ import annotations

import pytest

from destination_datalake.records.decoder import BlockDecoder
from destination_datalake.records.undeclared import undeclared_fields
from destination_datalake.schema.columns import WHOLE_RECORD

ODD = (
    "{}",
    '{ "a" : 1.50,\t"a":[ ] }',
    '{"data":{"record":{}}}',
    '{"_airbyte_data":1}',
    '{"n":1e400}',
    '{"n":123456789012345678901234567890}',
    '{"s":"\\ud800"}',
    '{"\u00e9":"\\u00e9"}',
)


def line(data: str, before: str = "") -> bytes:
    return f'{{"type":"RECORD","record":{{{before}"stream":"s","data":{data},"emitted_at":1700000000000}}}}\n'.encode()


def kept(block: bytes) -> list[str | None]:
    parts = [*BlockDecoder((WHOLE_RECORD,)).decode(block)]
    assert not any(part.rejected or part.changed for part in parts)
    rows = [
        (number, value)
        for part in parts
        for number, value in zip(part.lines.numbers.tolist(), part.columns[0].to_pylist(), strict=True)
    ]
    return [value for _, value in sorted(rows)]


@pytest.mark.parametrize("data", ODD)
def test_a_record_is_kept_as_it_was_received(data: str) -> None:
    assert kept(line(data)) == [data]
    assert kept(line('{"x":1}') + line(data) + line(data, '"meta":7,')) == ['{"x":1}', data, data]


@pytest.mark.parametrize("data", ["1", "[]", '"{}"', "null"])
def test_data_that_are_no_object_are_rejected(data: str) -> None:
    [decoded] = BlockDecoder((WHOLE_RECORD,)).decode(line(data))
    assert (decoded.rows, len(decoded.rejected)) == (0, 1)


def test_no_field_of_a_whole_record_is_undeclared() -> None:
    assert undeclared_fields(line('{"a":1}'), (WHOLE_RECORD,)) == ()
